"""Drawing: figures of the core as scenes of lines, areas and text, and scenes as SVG, PNG and HTML."""
