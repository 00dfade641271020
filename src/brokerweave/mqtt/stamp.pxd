# C types for stamp.py, used only when it is compiled. Names and meaning are there.
import cython
from brokerweave.mqtt.publish cimport fixed_header
from brokerweave.mqtt.scanner cimport PublishReader

cdef bytes _HEAD
cdef list _SIZES
cdef tuple _PADDING


@cython.final
cdef class Stamps:
    cdef object _check
    cdef PublishReader _head

    @cython.locals(head=PublishReader, bare=bytes, value=bytes, properties=bytes)
    cpdef bytes stamp(self, bytes frame, bytes id)
    @cython.locals(head=PublishReader, kept=list, at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t)
    cpdef tuple take_off(self, bytes frame)
    @cython.locals(head=PublishReader, size=bytes, topic_and_id=bytes, length=Py_ssize_t, first=bytes)
    cdef bytes _with_properties(self, bytes frame, bytes properties)
    cdef bytes _value(self, bytes id)
    cdef object _id(self, bytes value)
