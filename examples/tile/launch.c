/* Launches a tile kernel from C: compiles the text of add.tile for the CPU and adds a number to each element of a vector.
 *
 *   launch add.tile
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/api/c.h>

#define COUNT 1000
#define PER_PROGRAM 64

static int failed(const char* error) {
  if (error == NULL) return 0;
  fputs(error, stderr);
  return 1;
}

/* The file's text, to be freed; null where it cannot be read. */
static char* read_text(const char* path) {
  FILE* file = fopen(path, "rb");
  char* text = NULL;
  long size;
  if (file == NULL) return NULL;
  if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
    text = calloc((size_t)size + 1, 1);
    if (text != NULL && fread(text, 1, (size_t)size, file) != (size_t)size) {
      free(text);
      text = NULL;
    }
  }
  fclose(file);
  return text;
}

int main(int argc, char** argv) {
  static float x[COUNT], y[COUNT];
  tessera_kernel_options options = {0};
  tessera_kernel_argument arguments[4] = {{0}};
  const tessera_kernel_parameter* parameters = NULL;
  tessera_kernel* kernel = NULL;
  int32_t count = 0, i;
  char* text;
  if (argc != 2) return fputs("usage: launch FILE.tile\n", stderr), 2;
  text = read_text(argv[1]);
  if (text == NULL) return fprintf(stderr, "cannot read %s\n", argv[1]), 1;
  options.struct_size = sizeof options;
  options.device = "cpu";
  options.name = argv[1];
  if (failed(tessera_kernel_create(text, &options, &kernel))) return free(text), 1;
  free(text);
  if (failed(tessera_kernel_parameters(kernel, &parameters, &count))) return 1;
  for (i = 0; i < count; ++i)
    printf("%s: %s%s\n", parameters[i].name, parameters[i].is_pointer ? "pointer" : "scalar",
           parameters[i].written ? ", written" : "");
  for (i = 0; i < COUNT; ++i) x[i] = (float)i;
  arguments[0].kind = arguments[1].kind = TESSERA_ARGUMENT_POINTER;
  arguments[0].pointer = x;
  arguments[1].pointer = y;
  arguments[2].kind = TESSERA_ARGUMENT_FLOAT;
  arguments[2].number = 0.5;
  arguments[3].kind = TESSERA_ARGUMENT_INTEGER;
  arguments[3].integer = COUNT;
  if (failed(tessera_kernel_launch(kernel, (COUNT + PER_PROGRAM - 1) / PER_PROGRAM, 1, 1, arguments, 4, NULL)))
    return 1;
  for (i = 0; i < COUNT; ++i)
    if (y[i] != (float)i + 0.5F) return fprintf(stderr, "y[%d] is %g\n", (int)i, (double)y[i]), 1;
  printf("%d elements are right\n", COUNT);
  tessera_kernel_destroy(kernel);
  return 0;
}
