// One function calls itself as often as it is told. The other returns to its caller's caller if it is told 0, as a
// longjmp does.
.pushsection .text.evictscope_test, "ax", @progbits
.globl evictscope_test_recursive
evictscope_test_recursive:
    stp x29, x30, [sp, #-16]!
    cbz w0, 2f
    sub w0, w0, #1
    bl evictscope_test_recursive
2:
    ldp x29, x30, [sp], #16
    ret
.globl evictscope_test_leaving
evictscope_test_leaving:
    cbnz w0, 2f
    ldp x29, x30, [sp], #16
2:
    ret
.globl evictscope_test_caller
evictscope_test_caller:
    stp x29, x30, [sp, #-16]!
    bl evictscope_test_leaving
    ldp x29, x30, [sp], #16
    ret
.popsection
