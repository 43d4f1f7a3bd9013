/* What makes plain loops run as fast as a processor can, for the parts in C.
 *
 * EVERY_WIDTH   a function that is compiled for several widths of vectors; on glibc the processor decides at load time
 */

#ifndef ONNXQ_VECTORS_H
#define ONNXQ_VECTORS_H

#if defined(__x86_64__) && defined(__ELF__) && defined(__GLIBC__) && defined(__GNUC__) && \
    (!defined(__clang__) || __clang_major__ >= 14)
#define EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVERY_WIDTH
#endif

#if defined(_MSC_VER)
#define inline __inline
#define restrict __restrict
#endif

#endif
