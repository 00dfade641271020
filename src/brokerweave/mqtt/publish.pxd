# C types for publish.py, used only when it is compiled. Names and meaning are there.
import cython
from brokerweave.mqtt.scanner cimport PublishReader, RouteCache


cdef int _DOLLAR


@cython.locals(head=PublishReader, at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, index=Py_ssize_t,
               first=Py_ssize_t, runs=list)
cpdef list route_run(bytes blob, int version, RouteCache routes)
@cython.locals(head=PublishReader, at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, properties=bytes, parts=list)
cpdef bytes convert(bytes blob, int from_version, int to_version)
@cython.locals(head=PublishReader)
cpdef PublishHead publish_head(bytes frame, int version)
@cython.locals(head=PublishReader, first=int, middle=bytes, topic=bytes, payload=bytes)
cpdef bytes with_qos(bytes frame, int version, int to_version, int qos, int packet_id, bint dup)
cdef PublishReader _read_single(bytes frame, int version)
@cython.locals(header=bytearray)
cpdef bytes fixed_header(int first, Py_ssize_t length)


@cython.final
cdef class PublishHead:
    cdef readonly bytes topic
    cdef readonly int qos
    cdef readonly bint retain
    cdef readonly bint dup
    cdef readonly int packet_id
    cdef readonly bytes properties
    cdef readonly Py_ssize_t payload_start
