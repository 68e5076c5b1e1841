/* arc4random for libstdc++'s random_device. glibc has it since version 2.36, and the wheel is for
 * 2.34. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort(); /* 4 bytes come whole */
  return value;
}
