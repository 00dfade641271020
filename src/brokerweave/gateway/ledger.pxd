# C types for ledger.py, used only when it is compiled. Names and meaning are there.
import cython


@cython.final
cdef class Ledger:
    cdef Py_ssize_t _most
    cdef Py_ssize_t _size
    cdef object _write
    cdef public bint complete
    cdef public dict open
    cdef public dict received
    cdef public dict sent

    cpdef object pass_up(self, int file, bytes data)
    cpdef object pass_down(self, int file, bytes data)
    cpdef object up(self, bytes data)
    cpdef object down(self, bytes data)

    @cython.locals(
        at=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t,
        first=int, shift=int, byte=int, kind=int, code=int,
    )
    cdef object _walk(self, bytes data, bint up)
    @cython.locals(number=int)
    cdef object _publish(self, bytes data, Py_ssize_t start, Py_ssize_t at, Py_ssize_t end, bint up)
    cdef object _answer(self, int kind, int number, int code, bint up)
