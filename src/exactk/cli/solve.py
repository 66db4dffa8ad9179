"""`exactk solve`: a file of scored candidates in, the best valid card of each request out."""
