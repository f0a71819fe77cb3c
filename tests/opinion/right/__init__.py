"""Right implementations in other wordings than those of relpos."""
