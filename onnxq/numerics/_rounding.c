/* Rounding to evenly spaced numbers, halves to even, without holding the interpreter lock (see compiled.py).
 *
 * Bit for bit what numpy computes there: every operation is one of IEEE 754 in float32, in the same order (this file is
 * compiled without contraction of products and sums). Loops are plain; the compiler makes vectors of them, and on glibc
 * the processor decides at load time how wide they are.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "vectors.h"

#define LANES 64
#define LONGEST_SUM 128

/* To the nearest whole number, halves to even, for |x| <= 2^22: what is beyond 2^23 has no fraction in float32. */
static inline float nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static inline double nearest_double(double x)
{
    return (x + 6755399441055744.0) - 6755399441055744.0;
}

/* The number of steps from the zero point, limited first: the limits are whole, so that rounding stays between them. */
static inline float steps_of(float x, float scale, float low, float high)
{
    float ratio = x / scale;
    ratio = ratio < low ? low : ratio;
    ratio = ratio > high ? high : ratio;
    return nearest(ratio);
}

/* ---- codes and rounded values ---------------------------------------------------------------------------------- */

EVERY_WIDTH
static int encode_run(const float *restrict x, Py_ssize_t size, float scale, int zero, int qmin, int qmax,
                      uint8_t *restrict out)
{
    float low = (float)(qmin - zero), high = (float)(qmax - zero);
    int nan = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        nan |= x[i] != x[i];
        out[i] = (uint8_t)((int32_t)steps_of(x[i], scale, low, high) + zero);
    }
    return nan;
}

EVERY_WIDTH
static int encode_row(const float *restrict x, Py_ssize_t size, const float *restrict scale,
                      const int32_t *restrict zero, int qmin, int qmax, uint8_t *restrict out)
{
    int nan = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        nan |= x[i] != x[i];
        float low = (float)(qmin - zero[i]), high = (float)(qmax - zero[i]);
        out[i] = (uint8_t)((int32_t)steps_of(x[i], scale[i], low, high) + zero[i]);
    }
    return nan;
}

/* Adding a zero turns -0 into +0, which is what whole numbers have. */
EVERY_WIDTH
static int fake_run(const float *restrict x, Py_ssize_t size, float scale, int zero, int qmin, int qmax,
                    float *restrict out)
{
    float low = (float)(qmin - zero), high = (float)(qmax - zero);
    int nan = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        nan |= x[i] != x[i];
        out[i] = (steps_of(x[i], scale, low, high) + 0.0f) * scale;
    }
    return nan;
}

EVERY_WIDTH
static int fake_row(const float *restrict x, Py_ssize_t size, const float *restrict scale,
                    const int32_t *restrict zero, int qmin, int qmax, float *restrict out)
{
    int nan = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        nan |= x[i] != x[i];
        float low = (float)(qmin - zero[i]), high = (float)(qmax - zero[i]);
        out[i] = (steps_of(x[i], scale[i], low, high) + 0.0f) * scale[i];
    }
    return nan;
}

/* Rows of `length` values: row r has entry (r / repeat) % period of the scales, one number or, with `vector`, `length`. */
static int round_rows(const float *x, const float *scale, const int32_t *zero, uint8_t *codes, float *real,
                      Py_ssize_t rows, Py_ssize_t length, Py_ssize_t repeat, Py_ssize_t period, int vector, int qmin,
                      int qmax)
{
    int nan = 0;
    for (Py_ssize_t row = 0; row < rows; row++) {
        Py_ssize_t at = (row / repeat) % period, from = row * length;
        if (vector) {
            at *= length;
            nan |= codes ? encode_row(x + from, length, scale + at, zero + at, qmin, qmax, codes + from)
                         : fake_row(x + from, length, scale + at, zero + at, qmin, qmax, real + from);
        } else
            nan |= codes ? encode_run(x + from, length, scale[at], zero[at], qmin, qmax, codes + from)
                         : fake_run(x + from, length, scale[at], zero[at], qmin, qmax, real + from);
    }
    return nan;
}

static PyObject *round_values(PyObject *args, int to_codes)
{
    Py_buffer x, scale, zero, out;
    Py_ssize_t rows, length, repeat, period;
    int vector, qmin, qmax;
    if (!PyArg_ParseTuple(args, "y*y*y*w*nnnnpii", &x, &scale, &zero, &out, &rows, &length, &repeat, &period, &vector,
                          &qmin, &qmax))
        return NULL;
    int nan = -1;
    Py_ssize_t count = rows * length, scales = period * (vector ? length : 1);
    if (rows < 0 || length < 0 || repeat < 1 || period < 1 || x.len != count * 4 || scale.len != scales * 4 ||
        zero.len != scales * 4 || out.len != count * (to_codes ? 1 : 4))
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        nan = round_rows(x.buf, scale.buf, zero.buf, to_codes ? out.buf : NULL, to_codes ? NULL : out.buf, rows, length,
                         repeat, period, vector, qmin, qmax);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&zero);
    PyBuffer_Release(&out);
    return nan < 0 ? NULL : PyBool_FromLong(!nan);
}

static PyObject *encode(PyObject *self, PyObject *args)
{
    return round_values(args, 1);
}

static PyObject *fake(PyObject *self, PyObject *args)
{
    return round_values(args, 0);
}

/* ---- blocks: [outer, blocks, size, inner], whose scales are [outer, blocks, inner] -------------------------------- */

/* The range of each of some columns side by side; whether all values are finite. */
EVERY_WIDTH
static int range_of_columns(const float *restrict x, Py_ssize_t size, Py_ssize_t stride, Py_ssize_t lanes,
                            float *restrict low, float *restrict high)
{
    int bad = 0;
    memcpy(low, x, lanes * sizeof(float));
    memcpy(high, x, lanes * sizeof(float));
    for (Py_ssize_t k = 0; k < size; k++, x += stride)
        for (Py_ssize_t j = 0; j < lanes; j++) {
            bad |= !(x[j] - x[j] == 0.0f);
            low[j] = x[j] < low[j] ? x[j] : low[j];
            high[j] = x[j] > high[j] ? x[j] : high[j];
        }
    return !bad;
}

/* The same for `blocks` runs of `size` values. */
EVERY_WIDTH
static int range_of_runs(const float *restrict x, Py_ssize_t blocks, Py_ssize_t size, float *restrict low,
                         float *restrict high)
{
    int bad = 0;
    for (Py_ssize_t b = 0; b < blocks; b++, x += size) {
        float least[16], most[16];
        for (int j = 0; j < 16; j++)
            least[j] = most[j] = x[0];
        Py_ssize_t i = 0;
        for (; i + 16 <= size; i += 16)
            for (int j = 0; j < 16; j++) {
                float v = x[i + j];
                bad |= !(v - v == 0.0f);
                least[j] = v < least[j] ? v : least[j];
                most[j] = v > most[j] ? v : most[j];
            }
        for (; i < size; i++) {
            bad |= !(x[i] - x[i] == 0.0f);
            least[0] = x[i] < least[0] ? x[i] : least[0];
            most[0] = x[i] > most[0] ? x[i] : most[0];
        }
        for (int j = 1; j < 16; j++) {
            least[0] = least[j] < least[0] ? least[j] : least[0];
            most[0] = most[j] > most[0] ? most[j] : most[0];
        }
        low[b] = least[0];
        high[b] = most[0];
    }
    return !bad;
}

EVERY_WIDTH
static int all_finite(const uint32_t *restrict bits, Py_ssize_t size)
{
    uint32_t bad = 0;
    for (Py_ssize_t i = 0; i < size; i++)
        bad |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    return !bad;
}

static PyObject *is_finite(PyObject *self, PyObject *args)
{
    Py_buffer x;
    int found;
    if (!PyArg_ParseTuple(args, "y*", &x))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = all_finite(x.buf, x.len / 4);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&x);
    return PyBool_FromLong(found);
}

static PyObject *ranges(PyObject *self, PyObject *args)
{
    Py_buffer x, low, high;
    Py_ssize_t blocks, size, inner;
    if (!PyArg_ParseTuple(args, "y*w*w*nnn", &x, &low, &high, &blocks, &size, &inner))
        return NULL;
    int finite = -1;
    if (blocks < 0 || size < 1 || inner < 1 || x.len != blocks * size * inner * 4 || low.len != blocks * inner * 4 ||
        high.len != low.len)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        const float *from = x.buf;
        float *least = low.buf, *most = high.buf;
        if (inner == 1)
            finite = range_of_runs(from, blocks, size, least, most);
        else {
            finite = 1;
            for (Py_ssize_t b = 0; b < blocks; b++)
                finite &= range_of_columns(from + b * size * inner, size, inner, inner, least + b * inner,
                                           most + b * inner);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&low);
    PyBuffer_Release(&high);
    return finite < 0 ? NULL : PyBool_FromLong(finite);
}

/* ---- the scale of each block with the least squared error ---------------------------------------------------------- */

typedef struct {
    int qmin, qmax, symmetric, signed_scale;
    double steps, smallest, largest;
} Format;

/* Scale and zero point for `factor` times the range of each lane (qparams_from_range). */
EVERY_WIDTH
static void parameters(const Format *format, const float *restrict low, const float *restrict high, double factor,
                       Py_ssize_t lanes, float *restrict scale, int32_t *restrict zero)
{
    for (Py_ssize_t j = 0; j < lanes; j++) {
        double least = (double)(low[j] < 0.0f ? low[j] : 0.0f) * factor;
        double most = (double)(high[j] > 0.0f ? high[j] : 0.0f) * factor;
        double side = -least > most ? -least : most;
        double width = !format->symmetric ? most - least : format->qmin == 0 ? most : side;
        width = (width == 0.0 ? 1.0 : width) / format->steps;
        width = width < format->smallest ? format->smallest : width;
        width = width > format->largest ? format->largest : width;
        scale[j] = (float)width;
        double at = nearest_double((double)format->qmin - least / (double)scale[j]);
        at = at < (double)format->qmin ? (double)format->qmin : at;
        at = at > (double)format->qmax ? (double)format->qmax : at;
        zero[j] = format->symmetric ? 0 : (int32_t)at;
        scale[j] = format->signed_scale && most > -least ? -scale[j] : scale[j];
    }
}

static inline float square_of(float x, float scale, float low, float high)
{
    float change = x - steps_of(x, scale, low, high) * scale;
    return change * change;
}

/* The errors of columns side by side, summed from the first row to the last. Not computed where no lane can be better
 * than `least`: a sum of squares is never below one of them, and the ends of the range lose most. */
EVERY_WIDTH
static int errors_of_columns(const Format *format, const float *restrict x, Py_ssize_t size, Py_ssize_t stride,
                             Py_ssize_t lanes, const float *restrict ends_low, const float *restrict ends_high,
                             const float *restrict scale, const int32_t *restrict zero, const float *restrict least,
                             float *restrict errors)
{
    float low[LANES], high[LANES];
    int open = 0;
    for (Py_ssize_t j = 0; j < lanes; j++) {
        low[j] = (float)(format->qmin - zero[j]);
        high[j] = (float)(format->qmax - zero[j]);
        float one = square_of(ends_low[j], scale[j], low[j], high[j]);
        float other = square_of(ends_high[j], scale[j], low[j], high[j]);
        open |= (one < least[j]) & (other < least[j]);
        errors[j] = 0.0f;
    }
    if (!open)
        return 0;
    for (Py_ssize_t k = 0; k < size; k++, x += stride)
        for (Py_ssize_t j = 0; j < lanes; j++)
            errors[j] += square_of(x[j], scale[j], low[j], high[j]);
    return 1;
}

/* The error of one run of values, summed as numpy's reduceat does: the first, and the pairwise sum of the others. */
EVERY_WIDTH
static float error_of_run(const Format *format, const float *restrict x, Py_ssize_t size, float scale, int32_t zero)
{
    float low = (float)(format->qmin - zero), high = (float)(format->qmax - zero);
    float square[LONGEST_SUM + 1];
    for (Py_ssize_t i = 0; i < size; i++)
        square[i] = square_of(x[i], scale, low, high);
    const float *rest = square + 1;
    Py_ssize_t count = size - 1, i = 0;
    float sum = 0.0f;
    if (count >= 8) {
        float sums[8];
        for (int j = 0; j < 8; j++)
            sums[j] = rest[j];
        for (i = 8; i + 8 <= count; i += 8)
            for (int j = 0; j < 8; j++)
                sums[j] += rest[i + j];
        sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (; i < count; i++)
        sum += rest[i];
    return square[0] + sum;
}

static int search_columns(const Format *format, const float *x, Py_ssize_t size, Py_ssize_t stride, Py_ssize_t lanes,
                           const double *factors, Py_ssize_t count, float *scale, int32_t *zero)
{
    float low[LANES], high[LANES], tried[LANES], least[LANES], errors[LANES];
    int32_t at[LANES];
    if (!range_of_columns(x, size, stride, lanes, low, high))
        return 0;
    for (Py_ssize_t j = 0; j < lanes; j++)
        least[j] = INFINITY;
    if (errors_of_columns(format, x, size, stride, lanes, low, high, scale, zero, least, errors))
        memcpy(least, errors, lanes * sizeof(float));
    for (Py_ssize_t f = 0; f < count; f++) {
        parameters(format, low, high, factors[f], lanes, tried, at);
        if (!errors_of_columns(format, x, size, stride, lanes, low, high, tried, at, least, errors))
            continue;
        for (Py_ssize_t j = 0; j < lanes; j++) {
            int better = errors[j] < least[j];
            least[j] = better ? errors[j] : least[j];
            scale[j] = better ? tried[j] : scale[j];
            zero[j] = better ? at[j] : zero[j];
        }
    }
    return 1;
}

static int search_run(const Format *format, const float *x, Py_ssize_t size, const double *factors, Py_ssize_t count,
                       float *scale, int32_t *zero)
{
    float low, high, tried;
    int32_t at;
    if (!range_of_runs(x, 1, size, &low, &high))
        return 0;
    float least = error_of_run(format, x, size, *scale, *zero);
    for (Py_ssize_t f = 0; f < count; f++) {
        parameters(format, &low, &high, factors[f], 1, &tried, &at);
        float qlow = (float)(format->qmin - at), qhigh = (float)(format->qmax - at);
        if (square_of(low, tried, qlow, qhigh) >= least || square_of(high, tried, qlow, qhigh) >= least)
            continue;
        float error = error_of_run(format, x, size, tried, at);
        if (error < least) {
            least = error;
            *scale = tried;
            *zero = at;
        }
    }
    return 1;
}

static PyObject *search(PyObject *self, PyObject *args)
{
    Py_buffer x, scale, zero, factors;
    Py_ssize_t blocks, size, inner;
    Format format;
    if (!PyArg_ParseTuple(args, "y*w*w*y*nnniippddd", &x, &scale, &zero, &factors, &blocks, &size, &inner, &format.qmin,
                          &format.qmax, &format.symmetric, &format.signed_scale, &format.steps, &format.smallest, &format.largest))
        return NULL;
    int finite = -1;
    if (blocks < 0 || size < 1 || size > LONGEST_SUM || inner < 1 || x.len != blocks * size * inner * 4 ||
        scale.len != blocks * inner * 4 || zero.len != scale.len)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        finite = 1;
        Py_BEGIN_ALLOW_THREADS
        const float *from = x.buf;
        const double *tried = factors.buf;
        Py_ssize_t count = factors.len / (Py_ssize_t)sizeof(double);
        float *best = scale.buf;
        int32_t *at = zero.buf;
        for (Py_ssize_t b = 0; b < blocks; b++, from += size * inner, best += inner, at += inner) {
            if (inner == 1)
                finite &= search_run(&format, from, size, tried, count, best, at);
            else
                for (Py_ssize_t j = 0; j < inner; j += LANES)
                    finite &= search_columns(&format, from + j, size, inner, inner - j < LANES ? inner - j : LANES,
                                             tried, count, best + j, at + j);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&scale);
    PyBuffer_Release(&zero);
    PyBuffer_Release(&factors);
    return finite < 0 ? NULL : PyBool_FromLong(finite);
}

/* ---- half precision, and codes that share bytes --------------------------------------------------------------------- */

/* Every half is a float32: its exponent is moved by a product, which makes subnormal ones normal; NaN keeps its bits. */
EVERY_WIDTH
static void widen_halves(const uint16_t *restrict half, Py_ssize_t size, uint32_t *restrict out)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        uint32_t bits = half[i], rest = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
        float value;
        memcpy(&value, &rest, sizeof value);
        value *= 5.192296858534828e33f; /* 2^112 */
        uint32_t finite;
        memcpy(&finite, &value, sizeof finite);
        out[i] = sign | ((bits & 0x7c00u) == 0x7c00u ? rest | 0x7f800000u : finite);
    }
}

static PyObject *widen(PyObject *self, PyObject *args)
{
    Py_buffer half, out;
    if (!PyArg_ParseTuple(args, "y*w*", &half, &out))
        return NULL;
    int fits = out.len == 2 * half.len;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        widen_halves(half.buf, half.len / 2, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&half);
    PyBuffer_Release(&out);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

/* Several rows of codes, side by side in the bytes of one: the first in the lowest bits. */
EVERY_WIDTH
static void join_rows(const uint8_t *restrict codes, Py_ssize_t rows, Py_ssize_t stride, Py_ssize_t lanes, int bits,
                      uint8_t mask, uint8_t turned, uint8_t *restrict out)
{
    for (Py_ssize_t j = 0; j < lanes; j++)
        out[j] = 0;
    for (Py_ssize_t k = 0; k < rows; k++)
        for (Py_ssize_t j = 0; j < lanes; j++)
            out[j] |= (uint8_t)(((codes[k * stride + j] & mask) ^ turned) << (k * bits));
}

/* The same for codes behind each other. */
EVERY_WIDTH
static void join_run(const uint8_t *restrict codes, Py_ssize_t bytes, int bits, uint8_t mask, uint8_t turned,
                     uint8_t *restrict out)
{
    if (bits == 4)
        for (Py_ssize_t i = 0; i < bytes; i++)
            out[i] = (uint8_t)(((codes[2 * i] & mask) ^ turned) | (((codes[2 * i + 1] & mask) ^ turned) << 4));
    else if (bits == 2)
        for (Py_ssize_t i = 0; i < bytes; i++) {
            out[i] = 0;
            for (int k = 0; k < 4; k++)
                out[i] |= (uint8_t)(((codes[4 * i + k] & mask) ^ turned) << (2 * k));
        }
    else
        for (Py_ssize_t i = 0; i < bytes; i++)
            out[i] = (codes[i] & mask) ^ turned;
}

#define TILE 64

/* [columns, rows] of codes -> [rows, bytes of a row]: tiles of bytes are made side by side, and turned where both fit
 * into the nearest cache. */
static void pack_turned(const uint8_t *codes, Py_ssize_t columns, Py_ssize_t rows, int bits, uint8_t mask,
                        uint8_t turned, uint8_t *out, Py_ssize_t row_bytes)
{
    uint8_t tile[TILE][TILE];
    Py_ssize_t each = 8 / bits, bytes = (columns + each - 1) / each;
    for (Py_ssize_t first = 0; first < bytes; first += TILE) {
        Py_ssize_t count = bytes - first < TILE ? bytes - first : TILE;
        for (Py_ssize_t row = 0; row < rows; row += TILE) {
            Py_ssize_t lanes = rows - row < TILE ? rows - row : TILE;
            for (Py_ssize_t b = 0; b < count; b++) {
                Py_ssize_t from = (first + b) * each, left = columns - from < each ? columns - from : each;
                join_rows(codes + from * rows + row, left, rows, lanes, bits, mask, turned, tile[b]);
            }
            for (Py_ssize_t j = 0; j < lanes; j++) {
                uint8_t *to = out + (row + j) * row_bytes + first;
                for (Py_ssize_t b = 0; b < count; b++)
                    to[b] = tile[b][j];
            }
        }
    }
}

static PyObject *pack(PyObject *self, PyObject *args)
{
    Py_buffer codes, out;
    Py_ssize_t rows, columns, row_bytes;
    int bits, turned_round, mask, turned;
    if (!PyArg_ParseTuple(args, "y*w*nnnipii", &codes, &out, &rows, &columns, &row_bytes, &bits, &turned_round, &mask,
                          &turned))
        return NULL;
    int fits = (bits == 2 || bits == 4 || bits == 8) && rows >= 0 && columns >= 0 && codes.len == rows * columns &&
               out.len == rows * row_bytes && row_bytes * (8 / bits) >= columns &&
               (turned_round || columns % (8 / bits) == 0);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "sizes do not fit each other");
    else {
        Py_BEGIN_ALLOW_THREADS
        uint8_t *to = out.buf;
        if (turned_round)
            pack_turned(codes.buf, columns, rows, bits, (uint8_t)mask, (uint8_t)turned, to, row_bytes);
        else
            for (Py_ssize_t row = 0; row < rows; row++)
                join_run((const uint8_t *)codes.buf + row * columns, columns * bits / 8, bits, (uint8_t)mask,
                         (uint8_t)turned, to + row * row_bytes);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&out);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"widen", widen, METH_VARARGS, "widen(float16 values, float32 out)"},
    {"pack", pack, METH_VARARGS,
     "pack(bytes codes, out[rows, row_bytes], rows, columns, row_bytes, bits, turned_round, mask, turned): the numbers\n"
     "(code & mask) ^ turned of each row, the first in the lowest bits of a byte; codes are [rows, columns], or with\n"
     "`turned_round` [columns, rows]; bytes of `out` behind those of a row stay as they are"},
    {"encode", encode, METH_VARARGS,
     "encode(float32 x, float32 scale, int32 zero point, bytes out, rows, length, repeat, period, vector, qmin, qmax)\n"
     "-> whether no value was NaN: clip(round(x / scale) + zero_point, qmin, qmax); row r of x has entry\n"
     "(r / repeat) % period of the scales, which is one number, or `length` of them if `vector`"},
    {"fake", fake, METH_VARARGS, "fake(...) -> whether no value was NaN: as encode, times scale, as float32"},
    {"finite", is_finite, METH_VARARGS, "finite(float32 x) -> whether no value is NaN or infinite"},
    {"ranges", ranges, METH_VARARGS,
     "ranges(float32 x[blocks, size, inner], float32 low[blocks, inner], float32 high[blocks, inner],\n"
     "blocks, size, inner) -> whether all values are finite"},
    {"search", search, METH_VARARGS,
     "search(float32 x[blocks, size, inner], float32 scale[blocks, inner], int32 zero_point[blocks, inner],\n"
     "float64 factors, blocks, size, inner, qmin, qmax, symmetric, scales of either sign, steps, smallest scale,\n"
     "largest scale)\n"
     "-> whether all values are finite; each block the factor of its range with the least squared error, if that is less than what it has"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_rounding",
    .m_doc = "Rounding to evenly spaced numbers.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__rounding(void)
{
    return PyModule_Create(&module);
}
