"""Dealing a catalog's rows anew, so that a shard holds few categories: `shards.cluster_by_category`.

The engine computes what all products of a category have in common once for as long as it remembers it. A shard of a
thousand rows out of thousands of categories has it computed for almost every row; clustered, once or twice a category.
"""
