// The functions that the agent tries its probes on.
.pushsection .text.evictscope_calibration, "ax", @progbits
.globl evictscope_calibration_emulated
evictscope_calibration_emulated:
    b.eq 2f
2:
    ret
.globl evictscope_calibration_emulated_too
evictscope_calibration_emulated_too:
    b.eq 2f
2:
    ret
.globl evictscope_calibration_stepped
evictscope_calibration_stepped:
    mov w0, w1
    ret
.popsection
