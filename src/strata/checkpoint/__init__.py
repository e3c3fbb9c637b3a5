"""Where bytes are.

Owns: TensorRef, the GGUF reader and writer, the safetensors reader, typed metadata, summaries of headers.
May import: quant, core, numpy.
Never: does math; knows architectures; copies tensor data when reading.
"""
