"""Training data from a teacher: questions, answers, teachers, and the labelling job."""
