# One function calls itself as often as it is told. The other returns to its caller's caller if it is told 0, as a
# longjmp does.
.pushsection .text.evictscope_test, "ax", @progbits
.globl evictscope_test_recursive
evictscope_test_recursive:
    push rbx
    test edi, edi
    jz 2f
    dec edi
    call evictscope_test_recursive
2:
    pop rbx
    ret
.globl evictscope_test_leaving
evictscope_test_leaving:
    push rbx
    pop rbx
    test edi, edi
    jnz 2f
    add rsp, 8
2:
    ret
.globl evictscope_test_caller
evictscope_test_caller:
    call evictscope_test_leaving
    ret
.popsection
