"""Documents → entities and triples: one protocol, three extractors."""
