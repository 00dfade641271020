"""What clients of a site that died are owed: kept by others, given once where they come back."""
