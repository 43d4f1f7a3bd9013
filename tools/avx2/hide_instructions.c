/* Preloaded: answers the `cpuid` instructions that `tools.avx2.patch` has made invalid, as a processor without AVX-512,
 * VNNI and AMX would.
 *
 * UD0 stands in their place, so the kernel sends SIGILL. Nobody else gets hold of that signal: faulthandler would end
 * the program at the first of them. Its wish is kept for instructions that are truly invalid.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

/* Leaf 7, subleaf 0: avx512 f dq ifma pf er cd bw vl; vbmi vbmi2 vnni bitalg vpopcntdq; 4vnniw 4fmaps vp2intersect fp16
 * and amx bf16 tile int8. */
static const unsigned LEAF_7_EBX = BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);
static const unsigned LEAF_7_ECX = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14);
static const unsigned LEAF_7_EDX = BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25);
/* Subleaf 1: avx_vnni avx512_bf16 amx_fp16; avx_vnni_int8 amx_complex avx_vnni_int16 avx10. */
static const unsigned LEAF_7_1_EAX = BIT(4) | BIT(5) | BIT(21);
static const unsigned LEAF_7_1_EDX = BIT(4) | BIT(8) | BIT(10) | BIT(19);

static int (*system_sigaction)(int, const struct sigaction *, struct sigaction *);
static struct sigaction wanted = {.sa_handler = SIG_DFL};

static void answer(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)registers[REG_RIP];
    if (at[0] != 0x0f || at[1] != 0xff) {
        system_sigaction(SIGILL, &wanted, NULL); /* the instruction runs again, and meets what others want */
        return;
    }
    unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX];
    unsigned a, b, c, d;
    __cpuid_count(leaf, subleaf, a, b, c, d);
    if (leaf == 7 && subleaf == 0) {
        b &= ~LEAF_7_EBX;
        c &= ~LEAF_7_ECX;
        d &= ~LEAF_7_EDX;
    } else if (leaf == 7 && subleaf == 1) {
        a &= ~LEAF_7_1_EAX;
        d &= ~LEAF_7_1_EDX;
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void install(void)
{
    struct sigaction own = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    system_sigaction = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    system_sigaction(SIGILL, &own, &wanted);
}

int sigaction(int number, const struct sigaction *new, struct sigaction *old)
{
    if (number != SIGILL)
        return system_sigaction(number, new, old);
    if (old)
        *old = wanted;
    if (new)
        wanted = *new;
    return 0;
}
