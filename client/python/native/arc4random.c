/* arc4random for libstdc++'s random_device. The C library has it since version 2.36; the wheel is to
 * run where it is 2.34. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort(); /* 4 bytes come whole */
  return value;
}
