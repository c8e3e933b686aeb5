"""The nodes of the graph, one file each, named as the contract names them."""
