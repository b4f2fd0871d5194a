"""The IR as pictures: a graph of its dataflow, and a page that shows every pass."""
