"""Proposals from data: a job and schemas for a user's file (`hpd init`), schemas from labels."""
