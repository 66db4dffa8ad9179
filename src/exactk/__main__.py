"""`python -m exactk`: the command line where its script is not on the path."""

from exactk.cli import main

if __name__ == "__main__":
    main()
