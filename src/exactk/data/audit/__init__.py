"""What a data set gives away and what it cannot teach, before anything is trained."""
