"""How probable it is that an answer is right, learned from labelled products, and which answers may be taken for it."""
