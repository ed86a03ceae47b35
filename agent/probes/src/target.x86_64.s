# The functions that the agent tries its probes on.
.pushsection .text.evictscope_calibration, "ax", @progbits
.globl evictscope_calibration_emulated
evictscope_calibration_emulated:
    push rbx
    pop rbx
    ret
.globl evictscope_calibration_emulated_too
evictscope_calibration_emulated_too:
    push rbx
    pop rbx
    ret
.globl evictscope_calibration_stepped
evictscope_calibration_stepped:
    mov eax, edi
    ret
.popsection
