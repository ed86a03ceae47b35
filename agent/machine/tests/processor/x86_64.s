# Instructions that the servers at hand may not have in every form: those of newer processors, and what is easy to get
# wrong.
andn %rax, %rbx, %rcx
bextr %rax, %rbx, %rcx
blsr %rax, %rbx
mulx %rax, %rbx, %rcx
rorx $7, %rax, %rbx
sarx %rax, %rbx, %rcx
shlx %eax, %ebx, %ecx
movbe %eax, (%rbx)
vfmadd231sd %xmm1, %xmm2, %xmm3
vinserti128 $1, %xmm1, %ymm2, %ymm3
push %rsp
push 8(%rsp)
pop %rsp
pop 8(%rsp)
enter $16, $0
leave
mov %ah, %bl
mov %al, %bh
add %ch, (%rax)
add %bx, 2(%rax, %rax, 4)
lea -4(%eax, %ebx, 2), %rcx
mov (%eax), %rcx
mov %fs:(%rax), %rcx
cmovb (%rax), %ecx
shl $0, %eax
shl %cl, %ax
rol %cl, (%rax)
bt %rax, (%rbx)
xchg %rax, (%rbx)
xchg %eax, %eax
lock xadd %eax, (%rbx)
lock cmpxchg %eax, (%rbx)
cmpxchg16b (%rbx)
idivb (%rbx)
imulw $-3, (%rbx), %ax
movsbw (%rbx), %ax
repne scasw
