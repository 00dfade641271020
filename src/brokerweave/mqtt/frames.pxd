# C types for frames.py, used only when it is compiled. Names and meaning are there.
import cython

cdef int _CONNECT
cdef int _PUBLISH
cdef int _TOO_LARGE
cdef int _DOLLAR
cdef Py_ssize_t _WEIGHT
cdef object _MISSING
cdef bint _COMPILED
cdef int _RUN_HEAD


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
cdef class _Publish:
    cdef int qos
    cdef Py_ssize_t body
    cdef Py_ssize_t topic
    cdef Py_ssize_t topic_end
    cdef int packet_id
    cdef Py_ssize_t variable_end
    cdef Py_ssize_t properties
    cdef Py_ssize_t payload
    cdef bint alias

    @cython.locals(position=Py_ssize_t)
    cdef int read(self, bytes data, Py_ssize_t at, Py_ssize_t end, int version) except -1
    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t read_next(self, bytes data, Py_ssize_t at, int version) except -1
    @cython.locals(position=Py_ssize_t)
    cdef int _read_properties(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
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
    cdef _Publish _head
    cdef bytearray _waiting
    cdef Py_ssize_t _needed
    cdef Py_ssize_t _passing

    cpdef tuple feed(self, bytes chunk)
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, kind=int, publishes=Py_ssize_t)
    cpdef bint passes(self, bytes chunk)
    cpdef int count_passage(self, Py_ssize_t size) except -1
    @cython.locals(routes=RouteCache, head=_Publish)
    cdef bint _concerns(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, kind=int, found=_Found)
    cdef tuple _scan(self, bytes data)
    @cython.locals(data=bytes, head=_Publish, retain=int)
    cdef int _publish(self, RouteCache routes, _Found found, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int _wait(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1


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


@cython.locals(first=int)
cdef Py_ssize_t _frame_end(bytes data, Py_ssize_t at, Py_ssize_t size) except -1
@cython.locals(length=Py_ssize_t, shift=int, byte=int)
cdef Py_ssize_t _after_prefixed(bytes data, Py_ssize_t at, Py_ssize_t size) except -1
cdef Py_ssize_t _after_varint(bytes data, Py_ssize_t at) except -1
cdef Py_ssize_t _after_string(bytes data, Py_ssize_t at, Py_ssize_t end) except -1
cdef int _connect_version(bytes data, Py_ssize_t at, Py_ssize_t end) except -1

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

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, client=Py_ssize_t, client_end=Py_ssize_t, size=Py_ssize_t,
                   count="long long", marks=Py_ssize_t, time="long long", sequence="long long", version=int,
                   place=int, row=Py_ssize_t, before=Py_ssize_t)
    cpdef object add(self, bytes body, long long epoch, long long first, long long low, long long high,
                     RouteCache wanted)
    @cython.locals(head=int, frame_end=Py_ssize_t, topic=Py_ssize_t, topic_end=Py_ssize_t, position=Py_ssize_t,
                   properties=Py_ssize_t, payload=Py_ssize_t, row=Py_ssize_t)
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
@cython.locals(length=Py_ssize_t, shift=int, byte=int)
cdef Py_ssize_t _end_inside(bytes body, Py_ssize_t at, Py_ssize_t end) except -1
@cython.locals(index=Py_ssize_t, source="const unsigned char*")
cdef int _copy(unsigned char* raw, bytearray room, Py_ssize_t to, bytes body, Py_ssize_t at,
               Py_ssize_t size) except -1


@cython.locals(head=_Publish, at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, index=Py_ssize_t,
               first=Py_ssize_t, runs=list)
cpdef list route_run(bytes blob, int version, RouteCache routes)
@cython.locals(frames=list, at=Py_ssize_t, end=Py_ssize_t)
cpdef list split(bytes blob)
@cython.locals(head=_Publish, at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, properties=bytes, parts=list)
cpdef bytes convert(bytes blob, int from_version, int to_version)
@cython.locals(head=_Publish)
cpdef PublishHead publish_head(bytes frame, int version)
@cython.locals(head=_Publish, first=int, middle=bytes, topic=bytes, payload=bytes)
cpdef bytes with_qos(bytes frame, int version, int to_version, int qos, int packet_id, bint dup)
cdef _Publish _read_single(bytes frame, int version)
@cython.locals(header=bytearray)
cdef bytes _fixed_header(int first, Py_ssize_t length)


@cython.final
cdef class PublishHead:
    cdef readonly bytes topic
    cdef readonly int qos
    cdef readonly bint retain
    cdef readonly bint dup
    cdef readonly int packet_id
    cdef readonly bytes properties
    cdef readonly Py_ssize_t payload_start
