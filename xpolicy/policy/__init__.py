"""What a policy is: options, documents, layers and their resolution. Pure data in, data out."""
