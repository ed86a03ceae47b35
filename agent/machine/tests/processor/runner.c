// Has the processor execute one instruction at a time, from given states, for the test beside it. It is a program
// without a library, so that any compiler for the processor makes it, and an emulator of the processor runs it.
//
// The handler of signals does everything. What the kernel gives it, and takes back when it returns, is the state of the
// interrupted program: that from which the next instruction begins. Behind the instruction is one that traps.

#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/signal.h>
// These need that.
#include <asm/sigcontext.h>
#include <asm/ucontext.h>
#include <asm/unistd.h>

typedef unsigned char u8;
typedef unsigned long long u64;

enum { PAGE = 4096, MOST_STATES = 128, LONGEST = 16 };

// All that an instruction can read and write; not all of it is there on each processor.
struct state {
    u64 registers[32], flags, lanes[32][4], memory[PAGE / 8];
};

// What is of one processor: where the kernel keeps registers, how to call the kernel, what traps.
#if defined __x86_64__
static const u8 TRAP[] = {0xcc};
// How far behind the trap the kernel says that it is.
enum { BEHIND = sizeof TRAP };
__asm__(".globl _start, restorer\n_start: and $-16, %rsp\n call begin\nrestorer: mov $15, %eax\n syscall");

static u64 call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e) {
    register u64 r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

static void set_thread_pointer(u64 address) { call(__NR_arch_prctl, 0x1002, address, 0, 0, 0); }

static u64 *counter(struct ucontext *context) { return (u64 *)&context->uc_mcontext.rip; }

// Copies registers of the interrupted program to `state`, or from there.
static void exchange(struct ucontext *context, struct state *state, int is_load) {
    static const u8 PLACES[] = {13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7};
    // Carry, parity, adjust, zero, sign and overflow; and the direction of string instructions, always upwards.
    const u64 FLAGS = 0x8d5, DIRECTION = 0x400;
    u64 *machine = (u64 *)&context->uc_mcontext, *flags = (u64 *)&context->uc_mcontext.eflags;
    struct _xstate *vectors = (struct _xstate *)context->uc_mcontext.fpstate;
    for (int i = 0; i < 16; i++)
        if (is_load) machine[PLACES[i]] = state->registers[i];
        else state->registers[i] = machine[PLACES[i]];
    if (is_load) *flags = (*flags & ~(FLAGS | DIRECTION)) | state->flags;
    else state->flags = *flags & FLAGS;
    // Bits 1 and 2 are for the halves of vectors: what this processor has, and what is there. What is not, is zero.
    u64 *stored = (u64 *)&vectors->xstate_hdr.xfeatures, has = vectors->fpstate.sw_reserved.xfeatures & 6;
    for (int i = 0; i < 64; i++) {
        int half = i / 2 % 2, place = i / 4 * 2 + i % 2, bit = half ? 4 : 2;
        u64 *at = (half ? (u64 *)vectors->ymmh.ymmh_space : (u64 *)vectors->fpstate.xmm_space) + place;
        u64 *lane = &state->lanes[0][i];
        if (!(has & bit)) continue;
        if (is_load) *at = *lane;
        else *lane = *stored & bit ? *at : 0;
    }
    if (!is_load) return;
    // All others, such as the stack of the x87, are as in the beginning, too.
    *stored = has;
    vectors->fpstate.mxcsr = 0x1f80;
}
#elif defined __aarch64__
static const u8 TRAP[] = {0x00, 0x00, 0x20, 0xd4};
enum { BEHIND = 0 };
__asm__(".globl _start, restorer\n_start: bl begin\nrestorer: mov x8, #139\n svc #0");

static u64 call(u64 number, u64 a, u64 b, u64 c, u64 d, u64 e) {
    register u64 x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register u64 x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = 0;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

static void set_thread_pointer(u64 address) { __asm__("msr tpidr_el0, %0" : : "r"(address)); }

static u64 *counter(struct ucontext *context) { return (u64 *)&context->uc_mcontext.pc; }

// Copies registers of the interrupted program to `state`, or from there.
static void exchange(struct ucontext *context, struct state *state, int is_load) {
    const u64 FLAGS = 0xf0000000;
    // The stack pointer follows the general registers.
    u64 *machine = (u64 *)context->uc_mcontext.regs, *flags = (u64 *)&context->uc_mcontext.pstate;
    struct fpsimd_context *vectors = (struct fpsimd_context *)context->uc_mcontext.__reserved;
    for (int i = 0; i < 32; i++)
        if (is_load) machine[i] = state->registers[i];
        else state->registers[i] = machine[i];
    if (is_load) *flags = (*flags & ~FLAGS) | state->flags;
    else state->flags = *flags & FLAGS;
    for (int i = 0; i < 64; i++) {
        u64 *at = (u64 *)vectors->vregs + i, *lane = &state->lanes[i / 2][i % 2];
        if (is_load) *at = *lane;
        else *lane = *at;
    }
    if (is_load) vectors->fpcr = 0;
}
#else
#error "the test does not know this processor"
#endif

// Where the test expects instructions and memory.
static const u64 CODE = 0x234500000000, FAR_PAGE = 0x234500080000, NEAR_PAGE = 0x50000000;

static struct {
    u64 count, page, length;
    u8 code[LONGEST];
} question;
static struct state states[MOST_STATES];
static struct {
    u64 signal, counter;
    struct state state;
} answers[MOST_STATES];
static u64 next;
static u8 stack[1 << 16], *code;

static void whole(u64 number, u64 file, void *bytes, u64 left) {
    for (u8 *at = bytes; left;) {
        long done = call(number, file, (u64)at, left, 0, 0);
        if (done <= 0) call(__NR_exit, 0, 0, 0, 0, 0);
        at += done;
        left -= done;
    }
}

static void copy(void *to, const void *from, u64 bytes) {
    for (u64 i = 0; i < bytes / 8; i++) ((volatile u64 *)to)[i] = ((const u64 *)from)[i];
}

static void handle(int signal, void *information, struct ucontext *context) {
    (void)information;
    if (question.count) {
        answers[next].signal = signal;
        answers[next].counter = *counter(context) - (signal == SIGTRAP ? BEHIND : 0);
        copy(&answers[next].state, &states[next], sizeof *states);
        exchange(context, &answers[next].state, 0);
        copy(answers[next++].state.memory, (void *)question.page, PAGE);
    }
    if (next == question.count) {
        whole(__NR_write, 1, answers, next * sizeof *answers);
        whole(__NR_read, 0, &question, sizeof question);
        whole(__NR_read, 0, states, question.count * sizeof *states);
        next = 0;
        for (u64 i = 0; i < LONGEST; i++) code[i] = i < question.length ? question.code[i] : TRAP[i % sizeof TRAP];
        __builtin___clear_cache((char *)code, (char *)code + LONGEST);
    }
    copy((void *)question.page, states[next].memory, PAGE);
    exchange(context, &states[next], 1);
    *counter(context) = (u64)code;
}

static u8 *page(u64 address, u64 more) {
    u64 access = PROT_READ | PROT_WRITE | more, how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (call(__NR_mmap, address, PAGE, access, how, -1) != address) call(__NR_exit, 1, 0, 0, 0, 0);
    return (u8 *)address;
}

__attribute__((visibility("hidden"))) void restorer(void);

void begin(void) {
    static const int SIGNALS[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    // No one relocates addresses in data, so code has to store them.
    stack_t other = {0, 0, sizeof stack};
    struct sigaction action = {0, SA_SIGINFO | SA_ONSTACK | SA_RESTORER, 0, 0};
    other.ss_sp = stack;
    action.sa_handler = (void *)handle;
    action.sa_restorer = restorer;
    code = page(CODE, PROT_EXEC);
    for (u64 i = 0; i < PAGE; i++) code[i] = TRAP[i % sizeof TRAP];
    code += PAGE / 2;
    page(NEAR_PAGE, 0);
    set_thread_pointer((u64)page(FAR_PAGE, 0) + PAGE / 8);
    call(__NR_sigaltstack, (u64)&other, 0, 0, 0, 0);
    for (u64 i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        call(__NR_rt_sigaction, SIGNALS[i], (u64)&action, 0, 8, 0);
    // Whatever is executed can read, write and end, and do nothing else.
    call(__NR_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    __builtin_trap();
}
