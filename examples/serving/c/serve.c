/* Answers requests of several sizes from two threads: serve MODEL [DEVICE]. Inputs are all ones; a symbolic first dimension
 * is the batch, any other symbolic one the length. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/api/c.h>

enum { THREADS = 2, REQUESTS = 24, MOST = 16 };
static const int64_t batches[] = {1, 4}, lengths[] = {8, 16};
enum { SHAPES = sizeof batches / sizeof *batches };

static void write_line(void* context, int32_t level, const char* channel, const char* text) {
  (void)context;
  fprintf(stderr, "%s %s: %s\n", level == TESSERA_LOG_WARNING ? "warning" : "info", channel, text);
}

static int failed(const char* error) {
  if (error) fprintf(stderr, "%s\n", error);
  return error != NULL;
}

static size_t element_bytes(int32_t dtype) {
  switch (dtype) {
  case TESSERA_F32:
  case TESSERA_I32: return 4;
  case TESSERA_I64: return 8;
  case TESSERA_F16: return 2;
  default: fprintf(stderr, "an input has the element type %d\n", (int)dtype); exit(1);
  }
}

/* A request: the inputs of one shape. */
typedef struct {
  tessera_tensor inputs[MOST];
  int64_t dims[MOST][8];
  int32_t count;
} request;

static int64_t elements(const tessera_tensor* t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t->rank; ++d) n *= t->dims[d];
  return n;
}

static int make_request(tessera_session* session, int shape, int with_data, request* r) {
  const tessera_io* ios = NULL;
  if (failed(tessera_inputs(session, &ios, &r->count))) return 0;
  if (r->count > MOST) return 0;
  for (int32_t i = 0; i < r->count; ++i) {
    tessera_tensor* t = &r->inputs[i];
    if (ios[i].rank < 0 || ios[i].rank > 8) return 0;
    for (int32_t d = 0; d < ios[i].rank; ++d) {
      char* end;
      r->dims[i][d] = strtoll(ios[i].dims[d], &end, 10);
      if (*end) r->dims[i][d] = d == 0 ? batches[shape] : lengths[shape];
    }
    t->name = NULL; /* by place */
    t->dtype = ios[i].dtype;
    t->rank = ios[i].rank;
    t->dims = r->dims[i];
    t->data = NULL;
    if (!with_data) continue;
    int64_t n = elements(t);
    t->data = calloc((size_t)n, element_bytes(t->dtype));
    for (int64_t e = 0; e < n; ++e) {
      if (t->dtype == TESSERA_F32) ((float*)t->data)[e] = 1;
      if (t->dtype == TESSERA_I64) ((int64_t*)t->data)[e] = 1;
      if (t->dtype == TESSERA_I32) ((int32_t*)t->data)[e] = 1;
    }
  }
  return 1;
}

static void free_request(request* r) {
  for (int32_t i = 0; i < r->count; ++i) free(r->inputs[i].data);
}

/* Plans are a context's own: each is warmed up. */
static int warm_up(tessera_session* session) {
  for (int shape = 0; shape < SHAPES; ++shape) {
    request r;
    if (!make_request(session, shape, 0, &r) || failed(tessera_warmup(session, r.inputs, r.count))) return 0;
  }
  return 1;
}

/* One thread: returns null when all requests were answered. */
static void* serve(void* opened) {
  tessera_session* context = NULL;
  if (failed(tessera_clone(opened, &context))) return opened;
  int ok = warm_up(context);
  for (int k = 0; ok && k < REQUESTS; ++k) {
    request r;
    const tessera_tensor* outputs = NULL;
    int32_t count = 0;
    ok = make_request(context, k % SHAPES, 1, &r) &&
         !failed(tessera_run_fresh(context, r.inputs, r.count, &outputs, &count)) && count > 0 && outputs[0].data;
    free_request(&r);
  }
  tessera_close(context);
  return ok ? NULL : opened;
}

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "usage: serve MODEL [DEVICE]\n"), 2;
  if (tessera_version()->abi != TESSERA_ABI_VERSION) return fprintf(stderr, "another ABI\n"), 1;
  tessera_logger logger = {0};
  logger.struct_size = sizeof logger;
  logger.level = TESSERA_LOG_INFO;
  logger.write = write_line;
  if (failed(tessera_set_logger(&logger))) return 1;

  tessera_options options = {0};
  options.struct_size = sizeof options;
  options.device = argc > 2 ? argv[2] : "auto";
  options.memory_limit = (uint64_t)1 << 30;
  tessera_session* session = NULL;
  if (failed(tessera_open_with(argv[1], &options, &session)) || !warm_up(session)) return 1;
  tessera_metrics warm = {0}, m = {0};
  warm.struct_size = m.struct_size = sizeof m;
  if (failed(tessera_get_metrics(session, &warm))) return 1;

  pthread_t threads[THREADS];
  int wrong = 0;
  for (int t = 0; t < THREADS; ++t)
    if (pthread_create(&threads[t], NULL, serve, session) != 0) return 1;
  for (int t = 0; t < THREADS; ++t) {
    void* answer = NULL;
    pthread_join(threads[t], &answer);
    wrong += answer != NULL;
  }

  if (failed(tessera_get_metrics(session, &m))) return 1;
  printf("%d calls, %d errors, %d variants, %d guard misses, %.0f ms of compiling, at most %d KiB held\n", (int)m.calls,
         (int)m.errors, (int)m.variants, (int)m.guard_misses, m.compile_ms, (int)(m.peak_bytes >> 10));
  for (int b = 0; b < TESSERA_LATENCY_BUCKETS; ++b)
    if (m.latency[b]) printf("  below %lld us: %d\n", 1LL << b, (int)m.latency[b]);
  if (m.compiles != warm.compiles) wrong = 1, fprintf(stderr, "a request waited for a compile\n");
  if (m.calls != THREADS * REQUESTS) wrong = 1;
  tessera_close(session);
  (void)tessera_set_logger(NULL);
  return wrong ? 1 : 0;
}
