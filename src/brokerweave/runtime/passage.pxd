# C types for passage.py, used only when it is compiled. Names and meaning are there.
import cython
from brokerweave.mqtt.scanner cimport Scanner


@cython.final
cdef class Passage:
    cdef public bint open
    cdef Scanner _scanner
    cdef object _attend
    cdef object _file
    cdef object _write
    cdef object _rest
    cdef object _waiting
    cdef object _closing
