# C types for columns.py, used only when it is compiled. Names and meaning are there.
import cython
from brokerweave.mqtt.scanner cimport PublishReader, RouteCache

cdef bint _COMPILED
cdef int _RUN_HEAD


@cython.final
cdef class Columns:
    cdef readonly Py_ssize_t rows
    cdef readonly bint want_topic, want_payload, want_client, want_properties
    cdef readonly bytearray topics, payloads
    cdef readonly list clients, property_sets
    cdef long long[::1] epochs, sequences, received
    cdef int[::1] packet_ids, client_at, properties_at, topic_ends, payload_ends
    cdef unsigned char[::1] qos, retain, dup
    cdef unsigned char* _topics
    cdef unsigned char* _payloads
    cdef Py_ssize_t _limit, _room, _topic_bytes, _payload_bytes
    cdef dict _clients, _sets
    cdef PublishReader _head

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, client=Py_ssize_t, client_end=Py_ssize_t, size=Py_ssize_t,
                   count="long long", marks=Py_ssize_t, time="long long", sequence="long long", version=int,
                   place=int, row=Py_ssize_t, before=Py_ssize_t)
    cpdef object add(self, bytes body, long long epoch, long long first, long long low, long long high,
                     RouteCache wanted)
    @cython.locals(head=PublishReader, frame_end=Py_ssize_t, row=Py_ssize_t, size=Py_ssize_t,
                   start=Py_ssize_t, payload=Py_ssize_t)
    cdef int _frames(self, bytes body, Py_ssize_t at, Py_ssize_t end, int version, long long sequence,
                     long long low, long long high, RouteCache wanted) except -1
    @cython.locals(row=Py_ssize_t)
    cdef int _mark(self, bytes body, Py_ssize_t at, Py_ssize_t marks, long long sequence,
                   Py_ssize_t before) except -1
    cdef int _client(self, bytes name) except -1
    cdef int _property_set(self, bytes encoded) except -1


@cython.locals(at=Py_ssize_t, end=Py_ssize_t, name=Py_ssize_t, total="long long")
cpdef long long client_bytes(bytes body)
@cython.locals(value="long long", index=int)
cdef long long _number(bytes body, Py_ssize_t at, int size) noexcept
@cython.locals(index=Py_ssize_t, source="const unsigned char*")
cdef int _copy(unsigned char* raw, bytearray room, Py_ssize_t to, bytes body, Py_ssize_t at,
               Py_ssize_t size) except -1
