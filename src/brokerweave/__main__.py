"""`python -m brokerweave` is the `brokerweave` command."""

from brokerweave.cli.main import main

if __name__ == "__main__":
    main()
