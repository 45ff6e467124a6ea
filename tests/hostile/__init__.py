"""The matrix of lies: everything that files, programs and servers can tell advisor that is not so; see README.md."""
