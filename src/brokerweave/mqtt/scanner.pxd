# C types for scanner.py, used only when it is compiled. Names and meaning are there.
import cython

cdef int _CONNECT
cdef int _PUBLISH
cdef int _RESERVED
cdef int _DOLLAR
cdef Py_ssize_t _WEIGHT
cdef object _MISSING


@cython.final
cdef class RouteCache:
    cdef object _resolve
    cdef Py_ssize_t _capacity
    cdef dict _plain
    cdef dict _retained
    cdef Py_ssize_t _weight
    cdef public Py_ssize_t misses

    @cython.locals(known=dict)
    cpdef object lookup(self, bytes topic, bint retain)
    @cython.locals(known=dict)
    cpdef object discard(self, bytes topic)
    cpdef object clear(self)


@cython.final
cdef class Frame:
    cdef public int type
    cdef public bytes data
    cdef public Py_ssize_t at


@cython.final
cdef class Routed:
    cdef public object group
    cdef public Py_ssize_t count
    cdef public bytes blob
    cdef public int max_qos
    cdef public list resent
    cdef list _parts
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end

    @cython.locals(first=int, qos=int)
    cdef int _add(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int _cut(self, bytes data) except -1
    cdef int _close(self, bytes data) except -1


@cython.final
cdef class PublishReader:
    cdef readonly int qos
    cdef readonly Py_ssize_t body
    cdef readonly Py_ssize_t topic
    cdef readonly Py_ssize_t topic_end
    cdef readonly int packet_id
    cdef readonly Py_ssize_t variable_end
    cdef readonly Py_ssize_t properties
    cdef readonly Py_ssize_t payload
    cdef readonly bint alias
    cdef readonly str problem

    @cython.locals(position=Py_ssize_t)
    cpdef bint read(self, bytes data, Py_ssize_t at, Py_ssize_t end, int version) except -1
    @cython.locals(end=Py_ssize_t)
    cpdef Py_ssize_t read_next(self, bytes data, Py_ssize_t at, Py_ssize_t limit, int version) except -1
    cpdef bytes topic_of(self, bytes data)
    cpdef bytes properties_of(self, bytes data)
    cpdef Py_ssize_t property_end(self, bytes data, Py_ssize_t at) except -1
    cdef bint _fail(self, str problem) except -1
    @cython.locals(position=Py_ssize_t)
    cdef bint _read_properties(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(identifier=int)
    cdef Py_ssize_t _after_property(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1


@cython.final
cdef class _Found:
    cdef bytes data
    cdef list items
    cdef int retain
    cdef dict _open
    cdef Routed _last

    cdef int whole(self, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(last=Routed)
    cdef int routed(self, object group, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(routed=Routed)
    cdef int close(self) except -1


@cython.final
cdef class Scanner:
    cdef public int wanted
    cdef public RouteCache routes
    cdef public int version
    cdef public int single_qos
    cdef readonly object error
    cdef readonly long long publishes
    cdef readonly long long passed
    cdef Py_ssize_t _max_packet
    cdef PublishReader _head
    cdef bytearray _waiting
    cdef Py_ssize_t _needed
    cdef Py_ssize_t _passing

    cpdef tuple feed(self, bytes chunk)
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, kind=int, publishes=Py_ssize_t)
    cpdef bint passes(self, bytes chunk)
    cpdef int count_passage(self, Py_ssize_t size) except -1
    @cython.locals(routes=RouteCache, head=PublishReader)
    cdef bint _concerns(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, kind=int, found=_Found)
    cdef tuple _scan(self, bytes data)
    @cython.locals(data=bytes, head=PublishReader, retain=int)
    cdef int _publish(self, RouteCache routes, _Found found, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int _fail(self, bytes data, Py_ssize_t at, object error) except -1
    cdef int _wait(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1


@cython.locals(raw="const char*")
cdef bytes _cut(bytes data, Py_ssize_t start, Py_ssize_t end)
cdef Py_ssize_t _frame_end(bytes data, Py_ssize_t at, Py_ssize_t size) except -2
@cython.locals(length=Py_ssize_t, shift=int, byte=int)
cdef Py_ssize_t _after_prefixed(bytes data, Py_ssize_t at, Py_ssize_t size) except -2
cdef Py_ssize_t _after_varint(bytes data, Py_ssize_t at) except -1
cdef Py_ssize_t _after_string(bytes data, Py_ssize_t at, Py_ssize_t end) except -1
cdef int _connect_version(bytes data, Py_ssize_t at, Py_ssize_t end) except -1


@cython.locals(frames=list, at=Py_ssize_t, end=Py_ssize_t)
cpdef list split(bytes blob)
