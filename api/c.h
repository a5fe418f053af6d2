/* The embedding interface in plain C, for programs in other languages: a session opened from a model, run on memory
 * that the caller owns. session.h says what a session is; what needs more than this is done in C++.
 *
 *   tessera_session* s;
 *   const char* error = tessera_open("model.onnx", "auto", 0, &s);
 *   if (!error) error = tessera_run(s, inputs, 2, outputs, 1);
 *
 * Every function that can fail returns null when it did not, and else the error as text, which is good until the same
 * thread calls again. Null pointers, counts and ranks that are not the model's, sizes that no memory has, misaligned or
 * overlapping memory are such errors, as far as a pointer shows it: that there is memory where it leads to is for the
 * caller to see to. A session is used by one thread at a time; a call that comes into another thread's is an error, but
 * closing a session that is in use is not noticed. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tessera_session tessera_session;

/* The error that the last failed function of this thread returned, in its parts: its exact texts, not escaped for a
 * terminal. Good until the same thread calls again; null where none has failed. */
typedef struct {
  const char* code;     /* "TES-3008": stable */
  const char* name;     /* "bad-input" */
  const char* location; /* "model.onnx: node 'Add_12' (Add, output 'z')", or empty */
  const char* message;
  const char* const* notes; /* note_count of them: causes, and what to do */
  int32_t note_count;
} tessera_error;
const tessera_error* tessera_last_error(void);

/* Element types. The numbers are those of ONNX's TensorProto.DataType, whatever the model's format. */
typedef enum {
  TESSERA_F32 = 1,
  TESSERA_U8 = 2,
  TESSERA_I8 = 3,
  TESSERA_U16 = 4,
  TESSERA_I16 = 5,
  TESSERA_I32 = 6,
  TESSERA_I64 = 7,
  TESSERA_STRING = 8, /* tessera_run_items() alone takes it */
  TESSERA_BOOL = 9,   /* one byte: 0 or 1 */
  TESSERA_F16 = 10,
  TESSERA_F64 = 11,
  TESSERA_U32 = 12,
  TESSERA_U64 = 13,
  TESSERA_C64 = 14,
  TESSERA_C128 = 15,
  TESSERA_BF16 = 16,
  TESSERA_F8E4M3FN = 17,
  TESSERA_F8E4M3FNUZ = 18,
  TESSERA_F8E5M2 = 19,
  TESSERA_F8E5M2FNUZ = 20,
  TESSERA_U4 = 21, /* two in a byte, the first in the lower half; as are I4 and F4E2M1 */
  TESSERA_I4 = 22,
  TESSERA_F4E2M1 = 23,
  TESSERA_F8E8M0 = 24,
  TESSERA_U2 = 25, /* four in a byte, the first in the lowest bits; as are those of I2 */
  TESSERA_I2 = 26
} tessera_dtype;

/* Contiguous, row-major memory, aligned to the element (to 8 bytes where that is larger). */
typedef struct {
  const char* name; /* of an input, null for the one at this place in the model's order; unused for outputs, which come
                     * in that order */
  int32_t dtype;    /* a tessera_dtype */
  int32_t rank;
  const int64_t* dims; /* rank of them */
  void* data;
} tessera_tensor;

/* All zero: what tessera_open() takes where nothing is said. */
typedef struct {
  const char* device; /* "cpu", "cuda", "cuda:1" (the second GPU) or "auto", the default */
  int32_t threads;    /* of the host, 0 for all cores */
  /* Tune kernels during the calls, in at most this share of the time: 0.05 is 5 %. 0: what the variable
   * TESSERA_TUNE_SHARE says, else never; negative: never. */
  double tune_share;
  /* Which f32 operations on a GPU may round operands to TF32: "off", "conv" (null; PyTorch's default too) or "all". */
  const char* tf32;
  /* A plan file (docs/steering.md), which `tessera compile --save-plan` wrote; null: none. What of it does not fit is
   * decided anew. */
  const char* plan;
} tessera_options;

/* `options` may be null. A variable of the environment, TESSERA_CACHE_DIR, names the folder of compiled kernels and of
 * tuned schedules. */
const char* tessera_open_with(const char* model, const tessera_options* options, tessera_session** session);
const char* tessera_open(const char* model, const char* device, int32_t threads, tessera_session** session);

/* A program of torch.export that the caller captured: its JSON (schema version 8). `weights`: its parameters, buffers
 * and constants by the names in its signature, in host memory that stays as it is until the session is closed.
 * `strided`: inputs and outputs lie in memory as the program's strides say (session.h, ProgramSource), else they are
 * contiguous. */
typedef struct {
  const char* name; /* of the model, for messages; may be null */
  const char* json;
  size_t json_bytes;
  const tessera_tensor* weights;
  int32_t weight_count;
  int32_t strided;
} tessera_program;
const char* tessera_open_program(const tessera_program* program, const tessera_options* options,
                                 tessera_session** session);
/* What of a program Tessera does not take, as JSON, good until the same thread calls again:
 * [{"node": position, "target": "torch.ops.aten.foo.default", "output": "foo", "reason": "..."}] */
const char* tessera_survey_program(const tessera_program* program, const char** refusals);
void tessera_close(tessera_session* session); /* null is allowed */

/* Another session over the same compiled code and weights, for another thread: calls of both run at the same time. It
 * has memory for intermediate results of its own. Each is closed by itself, in any order. */
const char* tessera_clone(tessera_session* session, tessera_session** clone);

/* "cpu" or "cuda": what "auto" came to. Good as long as the session; null for a null session. */
const char* tessera_device(const tessera_session* session);

/* An input or output as the model declares it. */
typedef struct {
  const char* name;
  int32_t dtype; /* a tessera_dtype */
  int32_t rank;
  const char* const* dims; /* rank of them: a number, or an expression over symbols: "768", "batch", "2*seq" */
} tessera_io;
/* In the model's order; they are the session's, good until it is closed. */
const char* tessera_inputs(tessera_session* session, const tessera_io** inputs, int32_t* count);
const char* tessera_outputs(tessera_session* session, const tessera_io** outputs, int32_t* count);
/* How many variants were compiled: one, and another for each call whose sizes those before were not made for. */
int32_t tessera_variants(const tessera_session* session);
/* Kernels that opening the session needed, and how many of them were taken from the cache folder. */
void tessera_kernels(const tessera_session* session, int32_t* needed, int32_t* cached);
/* What `tessera explain --format json` shows. The text is the session's, good until the next request or its close. */
const char* tessera_report(tessera_session* session, const char** json);

/* What outputs these inputs lead to: `outputs` shows `output_count` tensors in the model's order with name, type and
 * sizes and without data. They are the session's, good until the next request or its close. The inputs' data is not
 * looked at. An output whose sizes depend on values is an error. */
const char* tessera_output_sizes(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                 const tessera_tensor** outputs, int32_t* output_count);
/* 1: the sizes of all outputs follow from those of the inputs; 0: some depend on values, as NonZero's does, so that
 * tessera_run_fresh() alone can compute them. */
int32_t tessera_sizes_known(const tessera_session* session);

/* Inputs and outputs in host memory; each input once, and all outputs, of the sizes that the inputs lead to. The memory
 * of an output overlaps no other output's and no input's. */
const char* tessera_run(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                        const tessera_tensor* outputs, int32_t output_count);

/* The same with outputs in memory of the session's, good until it is called again or closed. */
const char* tessera_run_fresh(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                              const tessera_tensor** outputs, int32_t* output_count);

/* The same in a GPU's memory, put on `stream` (a CUstream of the primary context, null for the default one). Does not
 * wait; what goes wrong on the GPU later is reported by a later call, or by tessera_run(). */
const char* tessera_run_on_device(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                  const tessera_tensor* outputs, int32_t output_count, void* stream);

/* A value of any kind: a tensor of numbers or of strings, or a list of values. */
typedef enum {
  TESSERA_TENSOR = 0,
  TESSERA_SEQUENCE = 1,
  TESSERA_OPTIONAL = 2, /* of one item, or none */
  TESSERA_MAP = 3       /* of two: its keys, a tensor i64[n] or of n strings, and a tensor of its n values */
} tessera_item_kind;
typedef struct tessera_item {
  size_t struct_size;         /* sizeof(tessera_item) */
  int32_t kind;               /* a tessera_item_kind */
  tessera_tensor tensor;      /* TESSERA_TENSOR; its name is that of an input whatever its kind. No data of strings */
  const char* const* strings; /* of a tensor of strings: as many as it has elements */
  const size_t* string_bytes; /* their lengths; null: each ends with its first zero byte */
  const struct tessera_item* items; /* item_count of them, of other kinds */
  int32_t item_count;
} tessera_item;
/* What an input, or else an output, is that is a list: "sequence f32[?, 4]", "optional i64[]", "map i64 f32[]",
 * "sequence list<map i64 f32[]>[2]"; its dtype in tessera_io is -1. Null for a tensor. Good as long as the session. */
const char* tessera_list_type(const tessera_session* session, int32_t is_output, int32_t index);
/* tessera_run_fresh() for values of every kind; of models on every device, with values in host memory. */
const char* tessera_run_items(tessera_session* session, const tessera_item* inputs, int32_t input_count,
                              const tessera_item** outputs, int32_t* output_count);

/* Memory for output `output` of a call, once its element type and sizes are known; null: there is none, which ends the
 * call. `context` is the caller's. */
typedef void* (*tessera_allocate)(void* context, int32_t output, int32_t dtype, int32_t rank, const int64_t* dims);
/* The cheapest call: inputs by position (names are not looked at), in the memory of the session's device; outputs in
 * memory that `allocate` gives, those whose sizes depend on values included. `stream` as above, null on the host. */
const char* tessera_call(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                         tessera_allocate allocate, void* context, void* stream);

/* Memory of the GPU that the session runs on, for a caller without an allocator of its own. It may outlive the
 * session; streams live as long as the memory that is used on them. It is used by one thread at a time. */
typedef struct tessera_memory tessera_memory;
/* `bytes` of it at *data, aligned to 256, to be used on `stream`, and on others after tessera_memory_wait(). An
 * `allocate` of tessera_call() may call it. */
const char* tessera_memory_create(const tessera_session* session, size_t bytes, void* stream, tessera_memory** memory,
                                  void** data);
/* What is put on `stream` from now on comes after what was put on the stream of tessera_memory_create() before. */
const char* tessera_memory_wait(tessera_memory* memory, void* stream);
/* Gives it back after what was put on all of its streams before. Null is allowed. */
void tessera_memory_free(tessera_memory* memory);

#ifdef __cplusplus
}
#endif
