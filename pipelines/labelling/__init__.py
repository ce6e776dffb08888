"""Training data from a teacher: questions, answers, teachers, and the job that asks them."""
