"""llama.cpp itself, in the package xllamacpp: logits of GGUF files, tokens, and the bytes of ggml's quantised types.

The functions of llama.h are called by ctypes. Settings are structs that are passed as a whole; this file knows the places
of few fields in the pinned version, and gives all structs more room than they need.
"""

import ctypes
from pathlib import Path

import numpy as np
import xllamacpp

(_library,) = Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")
_lib = ctypes.CDLL(str(_library))


class _Settings(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]

    def set(self, offset, value):
        ctypes.memmove(ctypes.addressof(self) + offset, ctypes.byref(ctypes.c_int32(value)), 4)


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def _declare(name, result, *arguments):
    function = getattr(_lib, name)
    function.restype, function.argtypes = result, arguments
    return function


_pointer, _int = ctypes.c_void_p, ctypes.c_int32
_model_settings = _declare("llama_model_default_params", _Settings)
_context_settings = _declare("llama_context_default_params", _Settings)
_load = _declare("llama_model_load_from_file", _pointer, ctypes.c_char_p, _Settings)
_new_context = _declare("llama_init_from_model", _pointer, _pointer, _Settings)
_new_batch = _declare("llama_batch_init", _Batch, _int, _int, _int)
_free_batch = _declare("llama_batch_free", None, _Batch)
_decode = _declare("llama_decode", _int, _pointer, _Batch)
_encode = _declare("llama_encode", _int, _pointer, _Batch)
_logits = _declare("llama_get_logits", ctypes.POINTER(ctypes.c_float), _pointer)
_vocabulary = _declare("llama_model_get_vocab", _pointer, _pointer)
_vocabulary_size = _declare("llama_vocab_n_tokens", _int, _pointer)
_tokenize = _declare("llama_tokenize", _int, _pointer, ctypes.c_char_p, _int, ctypes.POINTER(_int), _int, ctypes.c_bool,
                     ctypes.c_bool)
_free_context = _declare("llama_free", None, _pointer)
_free_model = _declare("llama_model_free", None, _pointer)
_quantize = _declare("ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, _pointer, _pointer, ctypes.c_int64, ctypes.c_int64,
                     ctypes.c_int64, _pointer)

_messages = []
_log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, _pointer)(
    lambda level, text, data: _messages.append(text.decode(errors="replace"))
)
_lib.llama_log_set(_log, None)
_lib.llama_backend_init()

# Offsets in llama_context_params: context, threads (two), flash attention, the types of cached keys and values.
_CONTEXT, _THREADS, _FLASH, _CACHE_TYPES, _F32 = 0, (28, 32), 52, (104, 108), 0


class LlamaCpp:
    """A GGUF file, computed in fp32 with fp32 keys and values."""

    def __init__(self, path, context=512):
        _messages.clear()
        self.model = _load(str(path).encode(), _model_settings())
        if not self.model:
            raise ValueError("llama.cpp does not load the file: " + "".join(_messages[-6:]))
        settings = _context_settings()
        settings.set(_CONTEXT, context)
        settings.set(_FLASH, 0)
        for offset in _THREADS:
            settings.set(offset, 2)
        for offset in _CACHE_TYPES:
            settings.set(offset, _F32)
        self.context = _new_context(self.model, settings)
        if not self.context:
            raise ValueError("llama.cpp computes nothing with the file: " + "".join(_messages[-6:]))
        self.vocabulary = _vocabulary(self.model)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        _free_context(self.context)
        _free_model(self.model)

    def _run(self, function, ids):
        batch = _new_batch(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
            batch.seq_id[i][0] = 0
        failed = function(self.context, batch)
        _free_batch(batch)
        if failed:
            raise ValueError(f"llama.cpp fails with code {failed}")

    def logits(self, ids, source=None):
        """[tokens, vocabulary]; with `source` of an encoder-decoder."""
        if source is not None:
            self._run(_encode, source)
        self._run(_decode, ids)
        return np.ctypeslib.as_array(_logits(self.context), (len(ids), _vocabulary_size(self.vocabulary))).copy()

    def tokens(self, text):
        """The ids of a text, with what is added around it; special tokens in it are text."""
        encoded = text.encode()
        ids = (_int * (2 * len(encoded) + 16))()
        return ids[: _tokenize(self.vocabulary, encoded, len(encoded), ids, len(ids), True, False)]


def quantize(array, kind, block_bytes, block_values):
    """The bytes that ggml makes of a matrix in its type number `kind`."""
    values = np.ascontiguousarray(array, np.float32)
    out = np.zeros(values.size // block_values * block_bytes, np.uint8)
    rows, columns = values.size // values.shape[-1], values.shape[-1]
    _quantize(kind, values.ctypes.data, out.ctypes.data, 0, rows, columns, None)
    return out.tobytes()
