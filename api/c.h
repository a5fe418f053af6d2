/* The embedding interface in plain C, for programs in other languages: a session opened from a model, run on memory
 * that the caller owns. session.h says what a session is; tessera.hpp has the same as classes of C++.
 *
 *   tessera_session* s;
 *   const char* error = tessera_open("model.onnx", "auto", 0, &s);
 *   if (!error) error = tessera_run(s, inputs, 2, outputs, 1);
 *
 * Every function that can fail returns null when it did not, and else the error as text, which is good until the same
 * thread calls again. Null pointers, counts and ranks that are not the model's, sizes that no memory has, misaligned or
 * overlapping memory are such errors, as far as a pointer shows it: that there is memory where it leads to is for the
 * caller to see to. A session is used by one thread at a time; a call that comes into another thread's is an error, but
 * closing a session that is in use is not noticed.
 *
 * Stability. A program that was built with this header runs with every later library of the same TESSERA_ABI_VERSION,
 * the number in the library's soname (libtessera.so.1) and in the symbols' version (TESSERA_1). Within it
 *   functions and constants are added, and none is changed or removed;
 *   a struct that begins with struct_size grows at its end. The caller sets struct_size to sizeof of the struct and the
 *   rest to zero before it sets fields. A library takes the fields that it knows; a field of a later version that is not
 *   zero is an error;
 *   tessera_tensor, tessera_io and tessera_item stay as they are: they stand in arrays, and a size for each element would be checked
 *   for each input of each call. What they lack would come as another function;
 *   a struct that the library alone makes and shows by a pointer, as tessera_error, grows at its end. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_ABI_VERSION 1

typedef struct tessera_session tessera_session;

/* The version of the library. A program may compare `abi` with TESSERA_ABI_VERSION, which it was built with. */
typedef struct {
  int32_t major, minor, patch;
  int32_t abi;
} tessera_version_numbers;
const tessera_version_numbers* tessera_version(void);

/* The error that the last failed function of this thread returned, in its parts: its exact texts, not escaped for a
 * terminal. Good until the same thread calls again; null where none has failed. */
typedef struct {
  const char* code;     /* "TES-3008": stable */
  const char* name;     /* "bad-input" */
  const char* location; /* "model.onnx: node 'Add_12' (Add, output 'z')", or empty */
  const char* message;
  const char* const* notes; /* note_count of them: causes, and what to do */
  int32_t note_count;
  const char* output; /* name of the first result of the model's node at fault, as the model has it; or empty */
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

/* The source of the host's memory for intermediate results and for the outputs of tessera_run_fresh() and
 * tessera_run_items(). Both functions are called from any thread, also several at a time, until the session and its
 * clones are closed; they must not call Tessera. */
typedef struct {
  size_t struct_size;                                               /* sizeof(tessera_allocator) */
  void* (*allocate)(void* context, size_t bytes, size_t alignment); /* null: there is no memory, which ends the call */
  void (*release)(void* context, void* data, size_t bytes);
  void* context;
} tessera_allocator;

/* All zero but for struct_size: what tessera_open() takes where nothing is said. */
typedef struct {
  size_t struct_size; /* sizeof(tessera_options) */
  const char* device; /* "cpu", "cuda", "cuda:1" (the second GPU) or "auto", the default */
  int32_t threads; /* of the host; 0: as many as the process's affinity and its control group's quota have processors */
  /* Tune kernels during the calls, in at most this share of the time: 0.05 is 5 %. 0: what the variable
   * TESSERA_TUNE_SHARE says, else never; negative: never. */
  double tune_share;
  /* Which f32 operations on a GPU may round operands to TF32: "off", "conv" (convolutions; null; PyTorch's
   * default, too), "matmul" (products) or "all". */
  const char* tf32;
  /* A plan file (docs/steering.md), which `tessera compile --save-plan` wrote; null: none. What of it does not fit is
   * decided anew. */
  const char* plan;
  /* Most bytes that the session and its clones hold together: intermediate results, copies of inputs on the GPU, outputs
   * that the library allocates, plans of sizes with their graphs, and weights that were packed or uploaded for them
   * first. 0: any number. A call that needs more, once what other sizes left behind is given back, is an error
   * (TES-4001) before it begins. Code and mapped files are not counted. */
  uint64_t memory_limit;
  const tessera_allocator* allocator; /* null: the library's own */
  /* Which variants there are besides those without which a call has no answer: "generic" (null): none; "adaptive": for
   * sizes that recur, compiled in the background once that pays; "exact": for all sizes, compiled in the call. */
  const char* policy;
  int32_t max_variants; /* made for sizes, at most; those used least recently go. 0: 8 */
  /* 1: equal inputs have bit-identical results from call to call. Together with "adaptive" or a tune_share an error. */
  int32_t deterministic;
  /* Sizes that variants are made for, in the calls that have them: "batch=exact,seq=div:8". Null: those of the policy. */
  const char* specialize;
  /* Ranges that tessera_warmup_ranges() makes ready for before the session is open; null: none. */
  const char* ranges;
  /* Bytes of machine code, and of constants of their own, of variants made for sizes; those used least recently go.
   * 0: 256 MiB. */
  uint64_t max_variant_bytes;
  /* 1: round f16 and bf16 after every operator, as one operator after another would; nothing is computed in TF32. */
  int32_t strict_rounding;
  /* Folder of compiled plans and kernels and of tuned schedules; it is made where there is none, and must be the user's own
   * (docs/trust.md). Null: the variable TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera. */
  const char* cache_dir;
} tessera_options;

/* `options` may be null. */
const char* tessera_open_with(const char* model, const tessera_options* options, tessera_session** session);
const char* tessera_open(const char* model, const char* device, int32_t threads, tessera_session** session);

/* A program of torch.export that the caller captured: its JSON (schema version 8). `weights`: its parameters, buffers
 * and constants by the names in its signature, in host memory that stays as it is until the session is closed.
 * `strided`: inputs and outputs lie in memory as the program's strides say (session.h, ProgramSource), else they are
 * contiguous. */
typedef struct {
  size_t struct_size; /* sizeof(tessera_program) */
  const char* name;   /* of the model, for messages; may be null */
  const char* json;
  size_t json_bytes;
  const tessera_tensor* weights;
  int32_t weight_count;
  int32_t strided;
} tessera_program;
const char* tessera_open_program(const tessera_program* program, const tessera_options* options,
                                 tessera_session** session);
/* The nodes of a program that Tessera does not take, as JSON, good until the same thread calls again: [{"node":
 * position, "target": "torch.ops.aten.foo.default", "output": "foo", "reason": "..."}] */
const char* tessera_survey_program(const tessera_program* program, const char** refusals);
/* Dimensions that ATen operators' fast code on a GPU has as constants, as JSON, good as long as the library: a caller
 * that captures programs for sizes it does not know may guard these, so that the program states them as numbers:
 * {"aten.foo.default": [{"argument": "query", "dim": -1, "differs_from": ""}]}
 * With a name in `differs_from`, only where that argument's dimension is another one. */
const char* tessera_known_sizes(const char** sizes);
void tessera_close(tessera_session* session); /* null is allowed */

/* Another context of the same session, for another thread: calls of both run at the same time. Compiled code, weights,
 * memory_limit and metrics are the session's; plans of sizes, memory for intermediate results and what functions return
 * are the context's own. What was opened is a context as any other. Each is closed by itself, in any order. */
const char* tessera_clone(tessera_session* session, tessera_session** clone);

/* "cpu" or "cuda": what "auto" came to. Good as long as the session; null for a null session. */
const char* tessera_device(const tessera_session* session);

/* An input or output as the model declares it. */
typedef struct {
  const char* name;
  int32_t dtype;           /* a tessera_dtype */
  int32_t rank;            /* -1: a call decides, as the model does not say it */
  const char* const* dims; /* rank of them: a number, or an expression over symbols: "768", "batch", "2*seq" */
} tessera_io;
/* In the model's order; they are the session's, good until it is closed. */
const char* tessera_inputs(tessera_session* session, const tessera_io** inputs, int32_t* count);
const char* tessera_outputs(tessera_session* session, const tessera_io** outputs, int32_t* count);
/* States: what the model changes in each call and reads in the next, as a module's buffers are. They are no inputs or
 * outputs. Each context, the one that was opened and each clone, has values of its own, which begin as the model's; on a
 * GPU they stay in its memory. A call that ends with an error leaves them as they were, and so do tessera_warmup() and
 * tessera_warmup_ranges(); a call on a stream changes them whatever the GPU finds later. A CUDA graph that such a call
 * was captured into changes them each time it runs, and may not outlive the context. Their dims are numbers. */
const char* tessera_states(tessera_session* session, const tessera_io** states, int32_t* count);
/* The value of state `index`, `bytes` of them, to the caller's host memory; calls before come first. */
const char* tessera_read_state(tessera_session* session, int32_t index, void* data, size_t bytes);
/* Another value, from host memory. */
const char* tessera_write_state(tessera_session* session, int32_t index, const void* data, size_t bytes);
const char* tessera_reset_states(tessera_session* session); /* all of them, to the model's values */
/* How many variants were compiled: one, and another for each call whose sizes those before were not made for. */
int32_t tessera_variants(const tessera_session* session);
/* Kernels that opening the session needed, and how many of them were taken from the cache folder. */
void tessera_kernels(const tessera_session* session, int32_t* needed, int32_t* cached);
/* The report that `tessera explain --format json` shows. The text is the session's, good until the next request or
 * its close. */
const char* tessera_report(tessera_session* session, const char** json);

/* The outputs that these inputs lead to: `outputs` shows `output_count` tensors in the model's order with name, type
 * and sizes and without data. They are the session's, good until the next request or its close. The inputs' data is
 * not looked at. An output whose sizes depend on values is an error. */
const char* tessera_output_sizes(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                 const tessera_tensor** outputs, int32_t* output_count);
/* 1: the sizes of all outputs follow from those of the inputs; 0: some depend on values, as NonZero's does, so that
 * tessera_run_fresh() alone can compute them. */
int32_t tessera_sizes_known(const tessera_session* session);

/* Inputs and outputs in host memory, which is complete when this returns, so that no stream is given; each input once, and all outputs, of the sizes that the inputs lead to. The memory
 * of an output overlaps no other output's and no input's. */
const char* tessera_run(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                        const tessera_tensor* outputs, int32_t output_count);

/* The same with outputs in memory of the session's, good until it is called again or closed. */
const char* tessera_run_fresh(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                              const tessera_tensor** outputs, int32_t* output_count);

/* The same in a GPU's memory, put on `stream` (a CUstream of the primary context, null for the default one). Does not
 * wait; what goes wrong on the GPU later is reported by a later call, or by tessera_run().
 *
 * `stream` may be one that the caller captures into a CUDA graph, in any mode, here and in tessera_call() and
 * tessera_run_bound(). The context must have made a call of these sizes before (tessera_warmup() does), else that is an
 * error, "call it once before capturing" (TES-1001); no step may need the host (TES-2003). The capture is then as it was. The graph has memory of its own, counted in
 * tessera_metrics.device_bytes and free again when the graph and what was instantiated from it are destroyed; it may run
 * any number of times, on any stream, next to calls of the session, and needs the memory of inputs and outputs. Bad indices
 * that it finds are reported by the next call that is not captured. */
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
/* The type of an input, or else an output, that is a list: "sequence f32[?, 4]", "optional i64[]", "map i64 f32[]",
 * "sequence list<map i64 f32[]>[2]"; its dtype in tessera_io is -1. Null for a tensor. Good as long as the session. */
const char* tessera_list_type(const tessera_session* session, int32_t is_output, int32_t index);
/* tessera_run_fresh() for values of every kind; of models on every device, with values in host memory. */
const char* tessera_run_items(tessera_session* session, const tessera_item* inputs, int32_t input_count,
                              const tessera_item** outputs, int32_t* output_count);

/* Binds inputs and outputs in the memory of the session's device, for tessera_run_bound(): as tessera_run() takes them,
 * by name or place. What they point to must stay until they are bound anew, or no longer (tessera_unbind()); the values
 * may change between runs. A variant that the sizes need is compiled here. Sizes of outputs that depend on values must
 * be what each run yields. After an error nothing is bound. */
const char* tessera_bind(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                         const tessera_tensor* outputs, int32_t output_count);
/* Runs on what is bound: nothing is looked up by name or checked again. `stream` as of tessera_run_on_device(), null on
 * the host. */
const char* tessera_run_bound(tessera_session* session, void* stream);
void tessera_unbind(tessera_session* session); /* null is allowed */

/* Makes ready for calls of these sizes: compiles what they need, plans them, and waits for libraries' choices, by a run
 * with inputs of zeros. An input with data is used as it is, which a model may need whose values have to be valid. Other
 * contexts have the compiled code, too, and plan by themselves. */
const char* tessera_warmup(tessera_session* session, const tessera_tensor* inputs, int32_t input_count);
/* Makes ready for calls whose sizes lie in ranges, MIN..OPT..MAX of each symbolic dimension (MIN..MAX, SIZE):
 * "batch=1..8..32,seq=1..512". No call within them waits for the compiler, unless values that it reads decide so; the
 * largest sizes fit memory_limit; the typical ones, OPT, are planned. Sizes outside work as before. The model runs on zeros;
 * `inputs` may be null, or values of some inputs by name, used where their sizes are those of the ranges. */
const char* tessera_warmup_ranges(tessera_session* session, const char* ranges, const tessera_tensor* inputs,
                                  int32_t input_count);
/* Waits for what runs and gives back the memory that earlier calls of the session, or of a context, have left behind:
 * intermediate results, plans of sizes, graphs of a GPU. Weights stay. The next call of a shape prepares it again. */
const char* tessera_trim(tessera_session* session);

/* Counts of a session's and its contexts' work since it was opened, and the memory that they hold. Read by any
 * thread at any time. */
#define TESSERA_LATENCY_BUCKETS 32
typedef struct {
  size_t struct_size; /* sizeof(tessera_metrics) */
  uint64_t calls;     /* of the functions that run the model; those of tessera_warmup() are counted apart */
  uint64_t errors;    /* calls that ended with one */
  uint64_t warmups;
  uint64_t new_shapes;      /* calls and warm-ups of sizes that their context had no plan for */
  uint64_t guard_misses;    /* a variant did not fit a call; see tessera_last_miss() */
  uint64_t variants;        /* that there are */
  uint64_t compiles;        /* of variants */
  uint64_t failed_compiles; /* another variant served the call, or it was an error */
  uint64_t kernels;         /* that the compiles needed */
  uint64_t cached_kernels;  /* those of them that the cache folder had */
  double compile_ms;        /* of all compiles, imports of the model included; loading a compiled file is none */
  uint64_t contexts;        /* that are open */
  uint64_t memory_limit;    /* bytes; 0: none */
  uint64_t host_bytes;      /* held for runs now: see tessera_options.memory_limit */
  uint64_t device_bytes;    /* of a GPU, likewise */
  uint64_t peak_bytes;      /* most of both together */
  uint64_t latency_us;      /* of all calls together */
  /* Calls by their time on the host in microseconds: the first of less than 1, number i of 2^(i-1) to below 2^i, the
   * last of all that took longer. A call that only puts work on a stream is as long as that takes. */
  uint64_t latency[TESSERA_LATENCY_BUCKETS];
  uint64_t blocking_compiles;   /* that a call waited for */
  double blocking_ms;           /* for so long, together */
  uint64_t background_compiles; /* that none waited for */
  uint64_t queued_compiles;     /* that the background has still to do */
  uint64_t evictions;           /* variants made for sizes that others took the place of */
  uint64_t swaps;               /* variants made for sizes that came to a context or left it, and variants and plans of
                                 * sizes that were replaced, between two of its calls */
  uint64_t variant_bytes;       /* of variants made for sizes: see tessera_options.max_variant_bytes */
  double load_ms;               /* of a compiled file */
  uint64_t cached_plans;        /* of the compiles: those whose result the cache folder had */
  uint64_t contained_failures;  /* internal failures of the compiles that cost one kernel's schedule, route or pass: the
                                 * report lists them, and where their texts were saved */
  uint64_t threads;             /* of the host, that calls run on: tessera_options.threads, or what 0 came to */
} tessera_metrics;
const char* tessera_get_metrics(const tessera_session* session, tessera_metrics* metrics);
/* The same in Prometheus' text format 0.0.4: tessera_calls_total, tessera_latency_seconds (a histogram), tessera_host_bytes
 * and so on, each with its help. `labels` of every sample, as 'model="bert",version="2"'; null or empty: none. Good until this
 * context's next request or its close. */
const char* tessera_metrics_text(tessera_session* session, const char* labels, const char** text);
/* Why no variant that there was fitted the last call, of any context, of which that is so: the condition, the sizes, what
 * came of it. Null text: it never happened. Good until this context's next request or its close. */
const char* tessera_last_miss(tessera_session* session, const char** text);

/* Memory for output `output` of a call, once its element type and sizes are known; null: there is none, which ends the
 * call. A call asks once for each output, also where another variant takes it over. `context` is the caller's. */
typedef void* (*tessera_allocate)(void* context, int32_t output, int32_t dtype, int32_t rank, const int64_t* dims);
/* The cheapest call: inputs by position (names are not looked at), in the memory of the session's device; outputs in
 * memory that `allocate` gives, those whose sizes depend on values included. `stream` as above, null on the host. */
const char* tessera_call(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                         tessera_allocate allocate, void* context, void* stream);

/* Memory of the GPU for what a call computes in between: at least `bytes`, aligned to 256. It is the call's until this has
 * returned and `stream` has got to the end of what it put there. A call asks once or a few times, from its own thread;
 * null: there is none, which ends the call. Not called by sessions on the host. */
typedef void* (*tessera_allocate_scratch)(void* context, size_t bytes);
/* The options of tessera_call_with(). */
typedef struct {
  size_t struct_size;        /* sizeof(tessera_call_options) */
  tessera_allocate allocate; /* of outputs, as of tessera_call() */
  /* Null: memory that the session keeps from call to call. */
  tessera_allocate_scratch scratch;
  void* context; /* of both */
  void* stream;
  /* Per input: not 0 if the caller does not need its contents any more, so that the call may put into its memory what it
   * computes in between. No other input or output overlaps it. Null: none, nor the memory of outputs before they are
   * written. */
  const uint8_t* donated;
  int32_t* overwritten; /* null, or set to 1 once the call uses such memory, also where it fails later; else to 0 */
} tessera_call_options;
/* tessera_call() with more said. */
const char* tessera_call_with(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                              const tessera_call_options* options);

/* Memory of the GPU that the session runs on, for a caller without an allocator of its own. It may outlive the
 * session; streams live as long as the memory that is used on them. It is used by one thread at a time. */
typedef struct tessera_memory tessera_memory;
/* `bytes` of it at *data, aligned to 256, to be used on `stream`, and on others after tessera_memory_wait(). An
 * `allocate` of tessera_call() may call it. */
const char* tessera_memory_create(const tessera_session* session, size_t bytes, void* stream, tessera_memory** memory,
                                  void** data);
/* Orders work that is put on `stream` from now on behind the work on the stream of tessera_memory_create(). */
const char* tessera_memory_wait(tessera_memory* memory, void* stream);
/* Gives it back after what was put on all of its streams before. Null is allowed. */
void tessera_memory_free(tessera_memory* memory);

/* A tile kernel (docs/tile-ir.md): a text that is compiled for a device and launched on memory of the caller's, without a
 * model. Any thread may launch it at any time; it is closed when no launch runs. */
typedef struct tessera_kernel tessera_kernel;
typedef struct {
  size_t struct_size;    /* sizeof(tessera_kernel_options) */
  const char* device;    /* as in tessera_options; null: "auto" */
  int32_t threads;       /* of the host, as in tessera_options */
  const char* name;      /* of the text, for messages: its file; null: "<text>" */
  const char* cache_dir; /* as in tessera_options */
} tessera_kernel_options;
/* `text` ends with a zero byte. `options` may be null. A text that cannot be read is an error with line and column
 * (TES-3010). Machine code lies in the cache folder by its text, the device and the compiler's version. */
const char* tessera_kernel_create(const char* text, const tessera_kernel_options* options, tessera_kernel** kernel);
/* null is allowed. On a GPU it waits until the launches have ended. */
void tessera_kernel_destroy(tessera_kernel* kernel);

typedef struct {
  const char* name;
  int32_t is_pointer; /* 1: the address of elements in the device's memory; 0: a scalar */
  int32_t dtype;      /* a tessera_dtype, of the scalar or of the elements */
  int32_t written;    /* 1: the kernel writes the elements */
  /* Promises that a launch keeps. An address is a multiple of `alignment` bytes (on the host, of an element's bytes), an i64
   * of `multiple`; each is 1 for other parameters. */
  int64_t alignment, multiple;
} tessera_kernel_parameter;
/* In the order of the text; they are the kernel's, good until it is destroyed. */
const char* tessera_kernel_parameters(const tessera_kernel* kernel, const tessera_kernel_parameter** parameters,
                                      int32_t* count);

typedef struct {
  size_t struct_size; /* sizeof(tessera_kernel_info) */
  const char* name;   /* in the text; good until the kernel is destroyed, as `device` is */
  const char* device; /* "cpu", or the GPU's architecture: "sm_90a" */
  int32_t threads;    /* of a block of a GPU, which runs one program; 0 on the host */
  int32_t registers;  /* of a thread of a GPU, and bytes of them that do not fit; -1: unknown */
  int32_t spill_bytes;
  int32_t cached;       /* 1: the cache folder had the machine code */
  int64_t shared_bytes; /* shared memory of a block of a GPU */
  double create_ms;     /* reading, compiling and loading */
} tessera_kernel_info;
const char* tessera_kernel_get_info(const tessera_kernel* kernel, tessera_kernel_info* info);

/* An argument of a launch: of the fields behind `kind`, the one that it names counts. An integer is taken for a float, too,
 * and for an address; a float for a float alone. */
typedef enum {
  TESSERA_ARGUMENT_POINTER = 0,
  TESSERA_ARGUMENT_INTEGER = 1,
  TESSERA_ARGUMENT_UNSIGNED = 2, /* `integer`, as an uint64_t of the same bits */
  TESSERA_ARGUMENT_FLOAT = 3     /* `number`, which is rounded to the parameter's dtype */
} tessera_argument_kind;
typedef struct {
  int32_t kind; /* a tessera_argument_kind */
  const void* pointer;
  int64_t integer;
  double number;
} tessera_kernel_argument;
/* Runs x * y * z programs, whose indices the kernel knows as program_id 0, 1 and 2; 0 of them is no error. `arguments`: one
 * for each parameter, in their order; the address of a tensor without elements may be null. On the host the programs have
 * ended when this returns, and `stream` is null. On a GPU it puts them on `stream` (a CUstream of the primary context, null
 * for the default one), which may be captured. A bad index that a program reports is an error of the launch on the host,
 * and on a GPU of a later launch that finds it. */
const char* tessera_kernel_launch(tessera_kernel* kernel, int64_t x, int64_t y, int64_t z,
                                  const tessera_kernel_argument* arguments, int32_t count, void* stream);

/* The log of the process: what TESSERA_LOG writes to standard error, to a function instead. */
typedef enum {
  TESSERA_LOG_WARNING = 1, /* of models, caches and files */
  TESSERA_LOG_INFO = 2,    /* what is seldom: variants that are compiled */
  TESSERA_LOG_DEBUG = 3    /* everything */
} tessera_log_level;
typedef struct {
  size_t struct_size;   /* sizeof(tessera_logger) */
  int32_t level;        /* a tessera_log_level: that and those before it */
  const char* channels; /* "guards,recompiles": these instead, as in TESSERA_LOG; null: those of the level */
  /* From any thread, one at a time; must not call Tessera. The texts are good during the call. */
  void (*write)(void* context, int32_t level, const char* channel, const char* text);
  void* context;
} tessera_logger;
/* Null: as before, what TESSERA_LOG says. The function before is not called any more when this returns. */
const char* tessera_set_logger(const tessera_logger* logger);

#ifdef __cplusplus
}
#endif
