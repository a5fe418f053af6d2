/* Operators of one's own, in plain C: of any domain of ONNX, from a shared library or registered by a program. C++ has
 * the same as classes, in operators.hpp. examples/operators has one of each kind.
 *
 * An operator has a shape function and one of
 *   decompose   what it is in terms of other operators: it fuses as they do, on every device
 *   kernel      a kernel in the text form of the tile IR (docs/tile-ir.md): host and GPU
 *   run         a function on the host
 *
 * A shared library exports both of these, C functions; `tessera --operators FILE` and tessera_load_operators() call them:
 *   uint32_t tessera_operators_version(void) { return TESSERA_OPERATORS_VERSION; }
 *   const char* tessera_register_operators(const tessera_operators_api* api, tessera_registry* registry);
 *
 * A later version only adds functions at the end of tessera_operators_api and fields at the end of tessera_operator:
 * a library that was built for version N works with every Tessera of version N or later. */
#pragma once
#include "api/c.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_OPERATORS_VERSION 1

typedef struct tessera_registry tessera_registry;           /* takes operators, during tessera_register_operators() */
typedef struct tessera_operator_call tessera_operator_call; /* one node of an operator, during one of its functions */
typedef int32_t tessera_dim;   /* a size, or an integer that a shape is made of: an expression over the sizes of the
                                * model's inputs; good during the call */
typedef int32_t tessera_value; /* a tensor of a decomposition, good during the call; -1: left out */

typedef enum {
  TESSERA_ATTRIBUTE_INT = 1, /* an element type, too, as the number of tessera_dtype */
  TESSERA_ATTRIBUTE_FLOAT = 2,
  TESSERA_ATTRIBUTE_STRING = 3,
  TESSERA_ATTRIBUTE_INTS = 4,
  TESSERA_ATTRIBUTE_FLOATS = 5,
  TESSERA_ATTRIBUTE_STRINGS = 6,
  TESSERA_ATTRIBUTE_TENSOR = 7
} tessera_attribute_kind;

typedef enum { /* of sizes; divisions are of numbers that are not negative by one that is positive */
               TESSERA_DIM_ADD = 1,
               TESSERA_DIM_SUB = 2,
               TESSERA_DIM_MUL = 3,
               TESSERA_DIM_FLOOR_DIV = 4,
               TESSERA_DIM_CEIL_DIV = 5,
               TESSERA_DIM_MOD = 6,
               TESSERA_DIM_MIN = 7,
               TESSERA_DIM_MAX = 8
} tessera_dim_operation;

typedef enum { TESSERA_OPERAND_REQUIRED = 0, TESSERA_OPERAND_OPTIONAL = 1, TESSERA_OPERAND_VARIADIC = 2 } tessera_arity;

typedef struct {
  const char* name;
  int32_t arity; /* a tessera_arity; VARIADIC: any number from here on, of the last one alone */
} tessera_operand;

typedef struct {
  const char* name;
  int32_t kind;     /* a tessera_attribute_kind */
  int32_t required; /* 1: a node without it is an error */
} tessera_attribute;

/* An attribute with its value, of an operator that a decomposition adds. */
typedef struct {
  const char* name;
  int32_t kind;
  int64_t i;
  double f;
  const char* s;
  const int64_t* ints;
  const double* floats;
  const char* const* strings;
  int32_t count; /* of ints, floats, strings */
  const tessera_tensor* tensor;
} tessera_attribute_value;

typedef void (*tessera_operator_function)(tessera_operator_call* call, void* user);

typedef struct {
  size_t struct_size;   /* sizeof(tessera_operator) */
  const char* name;     /* "FastScale" */
  const char* domain;   /* "com.example"; "" for ONNX's own, of which only names that it does not have are free */
  int32_t since, until; /* versions of the domain, inclusive; until 0: all that follow */
  const char* summary;  /* one line */
  const tessera_operand* operands;
  int32_t operand_count;
  const tessera_attribute* attributes;
  int32_t attribute_count;
  int32_t min_results, max_results;
  int32_t sizes_of_data; /* 1: `run` alone knows sizes of its results (dim_of_data) */
  int32_t changes;       /* 1: calls with equal operands may differ (random numbers, a counter), so that each is made */
  /* Types of the results: set_result() of each. Required with `kernel` and `run`. A decomposition has its own types; what
   * this says where it is there is checked against them. */
  tessera_operator_function shape;
  tessera_operator_function decompose;
  tessera_operator_function kernel; /* set_kernel(), or nothing where there is none for these types or this device */
  tessera_operator_function run;    /* next to `kernel`: for nodes and devices that have no kernel */
  void*
      user; /* for the functions, which any thread may call, also several at a time; it lives as long as the process */
} tessera_operator;

/* The functions that an operator's functions call. Every function may be called with anything: a wrong argument is
 * an error of the call, the first of which ends it; results are then 0, -1 or null. Text, arrays and memory that
 * they return are good during the call. */
typedef struct {
  size_t struct_size;
  uint32_t version; /* TESSERA_OPERATORS_VERSION of Tessera */

  /* -- in tessera_register_operators(): adds an operator, whose texts and arrays are copied. Null, or an error: it
   * has the name of another, no meaning or two, a struct_size that is not known. */
  const char* (*add)(tessera_registry* registry, const tessera_operator* op);

  /* -- of every function: the node */
  void (*fail)(tessera_operator_call* call, const char* message); /* ends the call with an error for the user */
  int32_t (*failed)(const tessera_operator_call* call);
  int32_t (*version_imported)(const tessera_operator_call* call); /* of the operator's domain, by the model */
  int32_t (*operand_count)(const tessera_operator_call* call);    /* as far as the last one that is given */
  int32_t (*result_count)(const tessera_operator_call* call);
  int32_t (*has_operand)(const tessera_operator_call* call, int32_t operand);
  int32_t (*has_attribute)(const tessera_operator_call* call, const char* name);
  int64_t (*attribute_int)(tessera_operator_call* call, const char* name,
                           int64_t otherwise); /* where it is not given */
  double (*attribute_float)(tessera_operator_call* call, const char* name, double otherwise);
  const char* (*attribute_string)(tessera_operator_call* call, const char* name, const char* otherwise);
  int32_t (*attribute_ints)(tessera_operator_call* call, const char* name,
                            const int64_t** values); /* their number; 0 without */
  int32_t (*attribute_floats)(tessera_operator_call* call, const char* name, const double** values);
  int32_t (*attribute_strings)(tessera_operator_call* call, const char* name, const char* const** values);
  int32_t (*attribute_tensor)(tessera_operator_call* call, const char* name,
                              tessera_tensor* value); /* 1 where it is given */

  /* -- of shape, decompose and kernel: types and sizes */
  int32_t (*operand_dtype)(tessera_operator_call* call, int32_t operand);
  int32_t (*operand_rank)(tessera_operator_call* call, int32_t operand);
  tessera_dim (*operand_dim)(tessera_operator_call* call, int32_t operand,
                             int32_t dimension); /* negative: from the end */
  /* Integers that an operand holds, as in Reshape's shape: their number, at most `most`. Where the model computes them,
   * they are read when it runs. Not of kernel. */
  int32_t (*operand_integers)(tessera_operator_call* call, int32_t operand, tessera_dim* integers, int32_t most);
  tessera_dim (*dim_number)(tessera_operator_call* call, int64_t number);
  tessera_dim (*dim_operation)(tessera_operator_call* call, int32_t operation, tessera_dim a, tessera_dim b);
  int32_t (*dim_is_number)(tessera_operator_call* call, tessera_dim dim, int64_t* number);
  /* Both must be equal: an error where they never are; where that depends on a call, calls in which they are not are an
   * error with this reason. */
  void (*require_equal)(tessera_operator_call* call, tessera_dim a, tessera_dim b, const char* reason);
  /* -- of shape */
  /* A size that only `run` knows: each call of it is another one. */
  tessera_dim (*dim_of_data)(tessera_operator_call* call);
  void (*set_result)(tessera_operator_call* call, int32_t result, int32_t dtype, int32_t rank, const tessera_dim* dims);

  /* -- of decompose */
  tessera_value (*operand_value)(tessera_operator_call* call, int32_t operand); /* -1 where it is left out */
  tessera_value (*constant)(tessera_operator_call* call,
                            const tessera_tensor* tensor); /* copied; numbers, at most 64 MB */
  tessera_value (*integers)(tessera_operator_call* call, const tessera_dim* integers, int32_t count); /* i64[count] */
  /* An operator of ONNX, of another domain that Tessera has, or of a library. `version`: of its domain, whose rules it
   * follows. `operands`: values, -1 where one is left out. Null for no results. */
  void (*add_operator)(tessera_operator_call* call, const char* name, const char* domain, int32_t version,
                       const tessera_value* operands, int32_t operand_count, const tessera_attribute_value* attributes,
                       int32_t attribute_count, tessera_value* results, int32_t result_count);
  int32_t (*value_dtype)(tessera_operator_call* call, tessera_value value);
  int32_t (*value_rank)(tessera_operator_call* call, tessera_value value);
  tessera_dim (*value_dim)(tessera_operator_call* call, tessera_value value, int32_t dimension);
  void (*set_value)(tessera_operator_call* call, int32_t result, tessera_value value); /* result of the node */

  /* -- of kernel */
  const char* (*device)(tessera_operator_call* call); /* "cpu", "cuda" */
  /* `text`: parameters are a pointer for each operand that is given, one `written` for each result, then an i64 for each
   * of `sizes`. `grid`: number of programs. A program that reads or writes outside of its parameters' memory does what
   * it would in C. */
  void (*set_kernel)(tessera_operator_call* call, const char* text, const tessera_dim* sizes, int32_t size_count,
                     tessera_dim grid);

  /* -- of run: operands and results are contiguous, row-major */
  /* 0 where it is left out. Of strings `data` is null. */
  int32_t (*operand)(tessera_operator_call* call, int32_t operand, tessera_tensor* tensor);
  /* Memory for a result, zero. Its type must be what the shape function said it is. */
  void* (*result)(tessera_operator_call* call, int32_t result, int32_t dtype, int32_t rank, const int64_t* dims);
  /* Element `index` of an operand of strings, and its length in bytes. */
  const char* (*string)(tessera_operator_call* call, int32_t operand, int64_t index, size_t* bytes);
  void (*set_string)(tessera_operator_call* call, int32_t result, int64_t index, const char* text, size_t bytes);
} tessera_operators_api;

typedef const char* (*tessera_register_operators_function)(const tessera_operators_api* api,
                                                           tessera_registry* registry);
typedef uint32_t (*tessera_operators_version_function)(void);

/* -- of a program that uses Tessera */
/* Registers the operators of a shared library for this process. It stays loaded; again is no error. */
const char* tessera_load_operators(const char* library);
/* Those of a function of the program. All of them are registered, or none. */
const char* tessera_add_operators(tessera_register_operators_function operators);

#ifdef __cplusplus
}
#endif
