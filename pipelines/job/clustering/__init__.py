"""Clustering of a catalog's rows, so that a shard holds few categories: `shards.cluster_by_category`.

The engine computes the prefix that all products of a category share once, until it is evicted. For a shard of a
thousand rows out of thousands of categories, it is computed for almost every row; clustered, once or twice a category.
"""
