"""`python -m strata`: the same command that `pip install` puts on the path."""

from strata.cli.main import main

if __name__ == "__main__":
    main()
