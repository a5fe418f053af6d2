/* The C interface from C: opens a model and lets its wrong use be told. */
#include <stdio.h>
#include <string.h>
#include <tessera/api/c.h>

int main(int argc, char** argv) {
  tessera_session* session = NULL;
  const char* error;
  if (argc != 2) return 2;
  error = tessera_open(argv[1], "cpu", 1, &session);
  if (error) return fputs(error, stderr), 1;
  printf("C: opened for %s\n", tessera_device(session));
  error = tessera_run(NULL, NULL, 0, NULL, 0);
  if (!error || !strstr(error, "session is null")) return 1;
  error = tessera_run(session, NULL, 1 << 30, NULL, 0);
  if (!error || !strstr(error, "inputs")) return 1;
  tessera_close(session);
  return 0;
}
