/* Opening a session without a daemon must fail with an error that says so and names the socket. */
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  ckpt_open_options options = CKPT_INIT(ckpt_open_options);
  ckpt_session* session = (ckpt_session*)&options;
  char error[256] = "";
  if (argc != 2 || ckpt_version() >> 16 != CKPT_VERSION_MAJOR) return 1;
  options.socket = argv[1];
  options.run = "tiny";
  options.timeout_ms = 20;
  if (ckpt_open(&options, &session, error, sizeof error) != CKPT_E_UNAVAILABLE) return 2;
  if (session != NULL || strstr(error, argv[1]) == NULL) return 3;
  if (strcmp(ckpt_status_name(CKPT_E_UNAVAILABLE), "unavailable") != 0) return 4;
  puts(error);
  return 0;
}
