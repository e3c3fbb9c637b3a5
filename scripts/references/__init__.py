"""Pages of docs/reference/, docs/man/ and the completion's table, each made from the code that it describes."""
