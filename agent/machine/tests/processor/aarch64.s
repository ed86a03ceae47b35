// Instructions of all forms that are followed, and others that are easy to get wrong.
.arch armv8.5-a
mov x0, x1
mov sp, x0
mov w0, #5
mov x0, #-1
mov x0, #0x12340000
mov x0, #0xff00ff00ff00ff
movk x0, #1, lsl 16
cmp x0, x1
cmp w0, w1, lsl 2
cmp x0, w1, sxtw
cmp w0, #4
cmn w0, #1
adds x0, x1, x2
add x0, x1, x2, lsl 3
add x0, x1, w2, uxtw 2
add x0, sp, #16
sub sp, sp, #1, lsl 12
neg x0, x1
negs x0, x1
mvn x0, x1
tst x0, #7
ands x0, x1, x2
bic x0, x1, x2
orn x0, x1, x2, lsr 3
lsl x0, x1, 3
lsr w0, w1, 3
asr x0, x1, 3
ror x0, x1, 3
lsl x0, x1, x2
ror x0, x1, x2
ubfx x0, x1, 3, 5
sbfx x0, x1, 3, 5
bfi x0, x1, 3, 5
bfxil x0, x1, 3, 5
ubfiz x0, x1, 3, 5
sxtw x0, w1
uxtb w0, w1
csel x0, x1, x2, eq
cset w0, ne
csetm x0, lo
cinc x0, x1, gt
csinv x0, x1, x2, mi
cneg x0, x1, lt
ccmp x0, #3, #4, ne
ccmp x0, x1, #2, hi
ccmp w0, w1, #9, vs
ccmn w0, #1, #8, le
ccmn x0, x1, #1, mi
madd x0, x1, x2, x3
mul x0, x1, x2
mneg x0, x1, x2
smull x0, w1, w2
smaddl x0, w1, w2, x3
umulh x0, x1, x2
sdiv x0, x1, x2
udiv w0, w1, w2
ldr x0, [x1, #8]
ldr w0, [x1], #8
ldr x0, [x1, #8]!
ldr x0, [x1, x2, lsl 3]
ldr x0, [x1, x2]
ldr w0, [x1, w2, uxtw 2]
ldrsw x0, [x1, w2, sxtw]
ldrsb w0, [x1]
ldp x29, x30, [sp], #32
stp x29, x30, [sp, #-32]!
stp xzr, xzr, [x0]
ldpsw x0, x1, [x2]
ldur x0, [x1, #-8]
stur wzr, [x1, #-3]
ldr q0, [x1]
str d0, [sp, #8]
ldr s0, [x1, x2]
stp q0, q1, [x0, #32]
ldp d8, d9, [sp], #16
ldxr x0, [x1]
stlxr w2, x0, [x1]
ldar x0, [x1]
stlr x0, [x1]
ldaxrb w0, [x1]
ldadd x0, x1, [x2]
stadd x0, [x2]
swpal w0, w1, [x2]
casal x0, x1, [x2]
casp x0, x1, x2, x3, [x4]
scvtf d0, x1
scvtf d0, w1
scvtf d0, d1
ucvtf d0, x1
fmul d0, d1, d2
fadd d0, d1, d2
fmadd d0, d1, d2, d3
fdiv d0, d1, d2
fmov d0, x1
fmov x0, d1
fmov d0, d1
fmov d0, #1.0
fmov w0, s1
fmov s0, w1
fmov x0, v1.d[1]
fmov v0.d[1], x1
movi v0.2d, #0
movi d0, #0
movi v0.4s, #0
movi v0.16b, #1
mov v0.16b, v1.16b
mov v0.d[1], x1
mov v0.d[1], v1.d[0]
mov x0, v1.d[1]
mov d0, v1.d[1]
dup v0.2d, x1
dup v0.2d, v1.d[0]
add v0.2d, v1.2d, v2.2d
add d0, d1, d2
addp d0, v1.2d
zip1 v0.2d, v1.2d, v2.2d
ld1 {v0.16b, v1.16b}, [x0], #32
st1 {v0.16b}, [x0], x2
adr x0, .+8
adrp x0, .+8
prfm pldl1keep, [x0]
dmb ish
isb
mrs x0, tpidr_el0
nop
yield
bti c
paciasp
autiasp
xpaclri
hint #9
retaa
ret
ret x1
br x16
blr x0
b .+8
bl .+8
b.eq .+8
cbz w0, .+8
tbnz x0, #33, .+8
rev x0, x1
clz x0, x1
rbit x0, x1
extr x0, x1, x2, #3
fcmp d0, d1
fcsel d0, d1, d2, eq
fcvtzs x0, d1
adc x0, x1, x2
sbcs x0, x1, x2
crc32x w0, w1, x2
dc zva, x0
braa x0, x1
uxtw x0, w1
uxth w0, w1
blraaz x3
ldapr x0, [x1]
mov wsp, w0
ldr x0, .+8
ldr w0, .+8
ldrsw x0, .+8
ldr d0, .+8
ldr q0, .+8
ldr x0, [x1, w2, sxtw 3]
ldr x0, [x1, w1, uxtw]
str x0, [x1, w2, uxtw 3]
