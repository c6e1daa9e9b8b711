/* Runs a cell that was compiled when this program was built (follower.cell), one step a call: the state is
 * carried in place. Nothing of cellc is linked. See CMakeLists.txt beside this file. */
#include <stdio.h>
#include <stdlib.h>

#include "follower.h"

enum { CHANNELS = 2 };

int main(void) {
  const float signal[6][CHANNELS] = {{1, -2}, {0, 0}, {0, 1}, {-1, 0}, {0, 0}, {0, 3}};
  float state[CHANNELS] = {0, 0};
  follower_lengths lengths = {CHANNELS, 1, 1, NULL, 0}; /* one sequence, one step */
  follower_arrays arrays = {0};                         /* null: rise and fall have defaults */
  int64_t bytes = 0;
  int t, result = follower_workspace(&lengths, &bytes);
  void* workspace = result ? NULL : malloc((size_t)bytes);

  arrays.h_start = arrays.h_final = state;
  for (t = 0; t < 6 && !result; ++t) {
    arrays.x = signal[t];
    result = follower_forward(&lengths, &arrays, workspace, bytes, NULL);
    if (!result) printf("%d  %.6f  %.6f\n", t, state[0], state[1]);
  }
  if (result) fprintf(stderr, "%s\n", follower_message(result));
  free(workspace);
  return result != 0;
}
