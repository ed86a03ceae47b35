// Has the processor execute one instruction at a time, each time from another state, for the test beside it. It is a
// program without a library, so that any compiler for the processor makes it, and an emulator of it runs it.
//
// The handler of signals does everything: the state of the interrupted program that the kernel gives it, and takes back
// when it returns, is the state from which the next instruction begins. Behind each instruction is one that traps.

#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/signal.h>
// They need those above.
#include <asm/sigcontext.h>
#include <asm/ucontext.h>
#include <asm/unistd.h>

typedef unsigned char u8;
typedef unsigned long long u64;

enum { PAGE = 4096, WORDS = PAGE / 8, MOST_STATES = 64, LONGEST = 16 };

// What is of one processor: its registers, where the kernel keeps them, how to call the kernel, what traps.
#ifdef __x86_64__
enum { REGISTERS = 16, VECTORS = 16, LANES = 4 };
static const u8 TRAP[] = {0xcc};
__asm__(".globl _start, restorer\n_start: and $-16, %rsp\n call begin\nrestorer: mov $15, %eax\n syscall");

struct state {
    u64 registers[REGISTERS], flags, lanes[VECTORS][LANES];
};

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

// Copies the state of the interrupted program to `state`, or from there.
static void exchange(struct ucontext *context, struct state *state, int is_load) {
    static const u8 PLACES[REGISTERS] = {13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7};
    // Carry, parity, adjust, zero, sign and overflow.
    const u64 FLAGS = 0x8d5, DOUBLES = 2, UPPER_HALVES = 4;
    u64 *machine = (u64 *)&context->uc_mcontext, *flags = (u64 *)&context->uc_mcontext.eflags;
    struct _xstate *vectors = (struct _xstate *)context->uc_mcontext.fpstate;
    // The kernel does not store what is as it was in the beginning, and that is zero.
    u64 *stored = (u64 *)&vectors->xstate_hdr.xfeatures;
    u64 present = vectors->fpstate.sw_reserved.xfeatures & (DOUBLES | UPPER_HALVES);
    for (int i = 0; i < REGISTERS; i++)
        if (is_load) machine[PLACES[i]] = state->registers[i];
        else state->registers[i] = machine[PLACES[i]];
    if (is_load) *flags = (*flags & ~(FLAGS | 0x400)) | state->flags;
    else state->flags = *flags & FLAGS;
    for (int i = 0; i < VECTORS * LANES; i++) {
        int vector = i / LANES, lane = i % LANES, half = lane / 2;
        u64 *from = half ? (u64 *)vectors->ymmh.ymmh_space : (u64 *)vectors->fpstate.xmm_space;
        u64 *at = from + 2 * vector + lane % 2, is_there = *stored & (half ? UPPER_HALVES : DOUBLES);
        if (!(present & (half ? UPPER_HALVES : DOUBLES))) continue;
        if (is_load) *at = state->lanes[vector][lane];
        else state->lanes[vector][lane] = is_there ? *at : 0;
    }
    if (is_load) {
        *stored = (*stored & ~1ull) | present;
        vectors->fpstate.mxcsr = 0x1f80;
    }
}
#else
#error "the test does not know this processor"
#endif

void restorer(void);

static struct {
    u64 count, page, length;
    u8 code[LONGEST];
    u64 memory[WORDS];
} batch;
static struct state states[MOST_STATES];
static u64 answer[MOST_STATES * (3 + sizeof(struct state) / 8 + 2 * WORDS)], answered, next;
static u8 stack[1 << 16], *code;

static void whole(u64 number, u64 file, void *bytes, u64 left) {
    for (u8 *at = bytes; left;) {
        long done = call(number, file, (u64)at, left, 0, 0);
        if (done <= 0) call(__NR_exit, 0, 0, 0, 0, 0);
        at += done;
        left -= done;
    }
}

static void answer_with(int signal, struct ucontext *context) {
    u64 *memory = (u64 *)batch.page, *changes = &answer[answered + 2];
    answer[answered++] = signal;
    answer[answered++] = *counter(context) - (signal == SIGTRAP ? sizeof TRAP : 0);
    answer[answered++] = 0;
    struct state *state = (struct state *)&answer[answered];
    *state = states[next - 1];
    exchange(context, state, 0);
    answered += sizeof *state / 8;
    for (u64 i = 0; i < WORDS; i++) {
        if (memory[i] == batch.memory[i]) continue;
        *changes += 1;
        answer[answered++] = i * 8;
        answer[answered++] = memory[i];
    }
}

static void handle(int signal, void *information, struct ucontext *context) {
    (void)information;
    if (batch.count) answer_with(signal, context);
    if (next == batch.count) {
        whole(__NR_write, 1, answer, answered * 8);
        whole(__NR_read, 0, &batch, sizeof batch);
        whole(__NR_read, 0, states, batch.count * sizeof *states);
        answered = next = 0;
        for (u64 i = 0; i < LONGEST; i++) code[i] = i < batch.length ? batch.code[i] : TRAP[i % sizeof TRAP];
        __builtin___clear_cache((char *)code, (char *)code + LONGEST);
    }
    for (u64 i = 0; i < WORDS; i++) ((u64 *)batch.page)[i] = batch.memory[i];
    exchange(context, &states[next++], 1);
    *counter(context) = (u64)code;
}

// Where the test expects what.
static const u64 CODE = 0x234500000000, FAR_PAGE = 0x234510000000, NEAR_PAGE = 0x50000000;

static u8 *page(u64 address, u64 more) {
    u64 access = PROT_READ | PROT_WRITE | more, how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (call(__NR_mmap, address, PAGE, access, how, -1) != address) call(__NR_exit, 1, 0, 0, 0, 0);
    return (u8 *)address;
}

void begin(void) {
    static const int SIGNALS[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    stack_t other = {stack, 0, sizeof stack};
    struct sigaction action = {0};
    action.sa_handler = (void *)handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER;
    action.sa_restorer = restorer;
    code = page(CODE, PROT_EXEC);
    for (u64 i = 0; i < PAGE; i++) code[i] = TRAP[i % sizeof TRAP];
    code += PAGE / 2;
    page(NEAR_PAGE, 0);
    set_thread_pointer((u64)page(FAR_PAGE, 0) + PAGE / 2);
    call(__NR_sigaltstack, (u64)&other, 0, 0, 0, 0);
    for (u64 i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        call(__NR_rt_sigaction, SIGNALS[i], (u64)&action, 0, 8, 0);
    // Whatever is executed can read, write and end, and do nothing else.
    call(__NR_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    __builtin_trap();
}
