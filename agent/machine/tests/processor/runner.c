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

// What is of one processor: its registers, where the kernel keeps them, how to call the kernel, what traps.
#ifdef __x86_64__
struct state {
    u64 registers[16], flags, lanes[16][4], memory[PAGE / 8];
};
static const u8 TRAP[] = {0xcc};
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
#else
#error "the test does not know this processor"
#endif

// Where the test expects instructions and memory.
static const u64 CODE = 0x234500000000, FAR_PAGE = 0x234510000000, NEAR_PAGE = 0x50000000;

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

static void copy(u64 *to, const u64 *from, u64 bytes) {
    for (u64 i = 0; i < bytes / 8; i++) to[i] = from[i];
}

static void handle(int signal, void *information, struct ucontext *context) {
    (void)information;
    if (question.count) {
        answers[next].signal = signal;
        answers[next].counter = *counter(context) - (signal == SIGTRAP ? sizeof TRAP : 0);
        struct state *state = &answers[next].state;
        copy(state->registers, states[next++].registers, sizeof *state - PAGE);
        exchange(context, state, 0);
        copy(state->memory, (u64 *)question.page, PAGE);
    }
    if (next == question.count) {
        whole(__NR_write, 1, answers, next * sizeof *answers);
        whole(__NR_read, 0, &question, sizeof question);
        whole(__NR_read, 0, states, question.count * sizeof *states);
        next = 0;
        for (u64 i = 0; i < LONGEST; i++) code[i] = i < question.length ? question.code[i] : TRAP[i % sizeof TRAP];
        __builtin___clear_cache((char *)code, (char *)code + LONGEST);
    }
    copy((u64 *)question.page, states[next].memory, PAGE);
    exchange(context, &states[next], 1);
    *counter(context) = (u64)code;
}

static u8 *page(u64 address, u64 more) {
    u64 access = PROT_READ | PROT_WRITE | more, how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (call(__NR_mmap, address, PAGE, access, how, -1) != address) call(__NR_exit, 1, 0, 0, 0, 0);
    return (u8 *)address;
}

void restorer(void);

void begin(void) {
    static const int SIGNALS[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    stack_t other = {stack, 0, sizeof stack};
    struct sigaction action = {(void *)handle, SA_SIGINFO | SA_ONSTACK | SA_RESTORER, restorer, 0};
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
