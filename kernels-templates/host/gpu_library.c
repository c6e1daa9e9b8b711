/* The functions of a library that holds a cell's code for GPUs and launches it: runtime/build/build_library.cc links
 * this, which the build compiles to LLVM bitcode, with the cell's tables and its image, and puts the cell's prefix in
 * the place of `cellc_cell` in names. */
#include <string.h>

#include "kernels-templates/host/driver_table.h"
#include "kernels-templates/host/host_backward.h"
/* Behind it: the driver's names are its table's. */
#include "kernels-templates/host/host_driver.h"

/* Of the cell: its tables, and words for results that are about one array. */
typedef struct cellc_room {
  int symbols, inputs, states, outs, stages, sums, part, addresses, before, once, views, starts, argument_words;
} cellc_room;
extern const cellc_cell cellc_the_cell;
extern const cellc_room cellc_the_room;
extern const char *const cellc_kernel_names[], *const cellc_missing[], *const cellc_foreign[], *const cellc_unaligned[];
extern const char cellc_about[];
extern const int64_t cellc_layout;
/* Of its gradients; zeros where the file has none. Kernels of the adjoint follow the cell's. */
extern const cellc_backward cellc_the_backward;
extern const cellc_room cellc_the_backward_room;
extern const char *const cellc_backward_missing[], *const cellc_backward_foreign[], *const cellc_backward_unaligned[];
extern const int64_t cellc_backward_layout;
extern const unsigned char cellc_image[];

/* The kernels in the primary context of one device. Memory of the caller. */
typedef struct cellc_module {
  CUmodule module;
  CUcontext context;
  int64_t device;
  CUfunction kernels[];
} cellc_module;

static int kernel_count(void) {
  return cellc_the_cell.kernel_count + (cellc_the_backward.adjoint ? cellc_the_backward.adjoint->kernel_count : 0);
}

int64_t cellc_cell_module_bytes(void) {
  return (int64_t)sizeof(cellc_module) + (int64_t)sizeof(CUfunction) * kernel_count();
}

static const char* error_words(CUresult error) {
  const char* words = 0;
  if (cellc_find_driver()) (void)cuGetErrorString(error, &words);
  return words ? words : "no such result";
}

int cellc_cell_supported(const char** reason) {
  const char* why = 0;
  CUresult error;
  int devices = 0;
  if (!cellc_find_driver()) {
    why = cellc_message(CELLC_NO_DRIVER);
  } else {
    error = cuInit(0);
    if (!error) error = cuDeviceGetCount(&devices);
    if (error) devices = 0, why = error_words(error);
    if (!error && !devices) why = "the driver has no device";
  }
  if (reason) *reason = why;
  return devices;
}

int cellc_cell_load(cellc_module* m, int device) {
  CUresult error;
  CUdevice ordinal = 0;
  CUcontext context = 0, popped;
  int result;
  if (!m) return CELLC_NOT_LOADED;
  memset(m, 0, (size_t)cellc_cell_module_bytes());
  if (!cellc_find_driver()) return CELLC_NO_DRIVER;
  error = cuInit(0);
  if (!error) error = cuDeviceGet(&ordinal, device);
  if (!error) error = cuDevicePrimaryCtxRetain(&context, ordinal);
  if (error) return cellc_driver_error(error);
  error = cuCtxPushCurrent(context);
  result = cellc_driver_error(error);
  if (!error) {
    result = cellc_driver_load(&m->module, m->kernels, cellc_kernel_names, kernel_count(), &m->context, cellc_image);
    (void)cuCtxPopCurrent(&popped);
  }
  m->device = ordinal;
  if (result) {
    m->module = 0;
    (void)cuDevicePrimaryCtxRelease(ordinal);
  }
  return result;
}

void cellc_cell_unload(cellc_module* m) {
  CUcontext popped;
  if (!m || !m->module) return;
  if (!cuCtxPushCurrent(m->context)) {
    (void)cuModuleUnload(m->module);
    (void)cuCtxPopCurrent(&popped);
  }
  (void)cuDevicePrimaryCtxRelease((CUdevice)m->device);
  memset(m, 0, (size_t)cellc_cell_module_bytes());
}

/* What a call is asked for. */
typedef struct cellc_asked {
  const void *lengths, *arrays;
  void* stream;
  uint64_t workspace;
  int64_t workspace_bytes;
  uint64_t status;
  int64_t* size_wanted; /* then nothing is queued */
} cellc_asked;

static int run_backward(const cellc_asked* a, const cellc_device* device, cellc_work* work) {
  const cellc_backward* of = &cellc_the_backward;
  uint64_t words[of->words], inputs[of->input_count + 1], outs[of->out_count + 1], past[of->past_count + 1];
  cellc_backward_call call;
  memset(&call, 0, sizeof call);
  call.of = of, call.device = device, call.work = work;
  call.words = words, call.inputs = inputs, call.outs = outs;
  call.past = past;
  return a->size_wanted ? cellc_count_backward(&call, a->lengths, a->arrays, a->size_wanted)
                        : cellc_run_backward(&call, a->lengths, a->arrays, a->workspace, a->workspace_bytes, a->status);
}

static int call_in_context(const cellc_module* m, const cellc_asked* a, int backward) {
  const cellc_cell* cell = backward ? cellc_the_backward.adjoint : &cellc_the_cell;
  const cellc_room* r = backward ? &cellc_the_backward_room : &cellc_the_room;
  cellc_nest_array symbols[r->symbols], part[r->part];
  cellc_rows_view inputs[r->inputs], states[r->states], outs[r->outs];
  uint64_t finals[r->states], remade[r->states], addresses[r->addresses], before[r->before], once[r->once],
      starts[r->starts], lasts[r->starts], argument[r->argument_words], sums[r->sums];
  cellc_view views[r->views];
  cellc_plan plans[r->stages];
  int sum_parts[r->stages];
  cellc_driver driver;
  cellc_device device;
  cellc_device_call call;
  cellc_work work;
  const int refused = cellc_driver_open(cell, m->kernels + (backward ? cellc_the_cell.kernel_count : 0), m->context,
                                        (CUstream)a->stream, &driver, &device);
  if (refused) return refused;
#define CELLC_ROOM(array) memset(array, 0, sizeof array), work.array = array
  CELLC_ROOM(symbols);
  CELLC_ROOM(part);
  CELLC_ROOM(inputs);
  CELLC_ROOM(states);
  CELLC_ROOM(outs);
  CELLC_ROOM(finals);
  CELLC_ROOM(remade);
  CELLC_ROOM(addresses);
  CELLC_ROOM(before);
  CELLC_ROOM(once);
  CELLC_ROOM(starts);
  CELLC_ROOM(lasts);
  CELLC_ROOM(argument);
  CELLC_ROOM(sums);
  CELLC_ROOM(views);
  CELLC_ROOM(plans);
  CELLC_ROOM(sum_parts);
#undef CELLC_ROOM
  if (backward) return run_backward(a, &device, &work);
  memset(&call, 0, sizeof call);
  call.cell = cell;
  call.device = &device;
  return a->size_wanted
             ? cellc_count_bytes(&call, &work, a->lengths, a->arrays, a->size_wanted)
             : cellc_run_call(&call, &work, a->lengths, a->arrays, a->workspace, a->workspace_bytes, a->status);
}

static int call_module(const cellc_module* m, const cellc_asked* a, int backward) {
  CUcontext current = 0;
  CUresult error;
  int result;
  if (!m || !m->module) return CELLC_NOT_LOADED;
  /* Mostly it is current: pushing it costs more than asking. */
  error = cuCtxGetCurrent(&current);
  if (!error && current == m->context) return call_in_context(m, a, backward);
  error = cuCtxPushCurrent(m->context);
  if (error) return cellc_driver_error(error);
  result = call_in_context(m, a, backward);
  (void)cuCtxPopCurrent(&current);
  return result;
}

static int count_module(const cellc_module* m, const void* lengths, const void* arrays, int64_t* bytes, int backward) {
  const cellc_asked asked = {lengths, arrays, 0, 0, 0, 0, bytes};
  return bytes ? call_module(m, &asked, backward) : CELLC_NO_BYTES;
}
static int run_module(const cellc_module* m, const void* lengths, const void* arrays, void* stream, void* workspace,
                      int64_t workspace_bytes, int32_t* status, int backward) {
  const cellc_asked asked = {
      lengths, arrays, stream, (uint64_t)(uintptr_t)workspace, workspace_bytes, (uint64_t)(uintptr_t)status, 0};
  return call_module(m, &asked, backward);
}

int cellc_cell_workspace(const cellc_module* m, const void* lengths, const void* arrays, int64_t* bytes) {
  return count_module(m, lengths, arrays, bytes, 0);
}

int cellc_cell_forward(const cellc_module* m, const void* lengths, const void* arrays, void* stream, void* workspace,
                       int64_t workspace_bytes, int32_t* status) {
  return run_module(m, lengths, arrays, stream, workspace, workspace_bytes, status, 0);
}

int cellc_cell_backward_workspace(const cellc_module* m, const void* lengths, const void* arrays, int64_t* bytes) {
  return count_module(m, lengths, arrays, bytes, 1);
}

int cellc_cell_backward(const cellc_module* m, const void* lengths, const void* arrays, void* stream, void* workspace,
                        int64_t workspace_bytes, int32_t* status) {
  return run_module(m, lengths, arrays, stream, workspace, workspace_bytes, status, 1);
}

/* What headers call: `layout` is that of the structs that the program was compiled with. */
int cellc_cell_workspace_as(int64_t layout, const cellc_module* m, const void* lengths, const void* arrays,
                            int64_t* bytes) {
  return layout == cellc_layout ? cellc_cell_workspace(m, lengths, arrays, bytes) : CELLC_OTHER_LAYOUT;
}

int cellc_cell_forward_as(int64_t layout, const cellc_module* m, const void* lengths, const void* arrays, void* stream,
                          void* workspace, int64_t workspace_bytes, int32_t* status) {
  return layout == cellc_layout ? cellc_cell_forward(m, lengths, arrays, stream, workspace, workspace_bytes, status)
                                : CELLC_OTHER_LAYOUT;
}

int cellc_cell_backward_workspace_as(int64_t layout, const cellc_module* m, const void* lengths, const void* arrays,
                                     int64_t* bytes) {
  return layout == cellc_backward_layout ? cellc_cell_backward_workspace(m, lengths, arrays, bytes)
                                         : CELLC_OTHER_LAYOUT;
}

int cellc_cell_backward_as(int64_t layout, const cellc_module* m, const void* lengths, const void* arrays, void* stream,
                           void* workspace, int64_t workspace_bytes, int32_t* status) {
  return layout == cellc_backward_layout
             ? cellc_cell_backward(m, lengths, arrays, stream, workspace, workspace_bytes, status)
             : CELLC_OTHER_LAYOUT;
}

static const char* words_of(int result, int fields, const char* const* missing, const char* const* foreign,
                            const char* const* unaligned) {
  if (result >= CELLC_UNALIGNED_FIELD && result < CELLC_UNALIGNED_FIELD + fields)
    return unaligned[result - CELLC_UNALIGNED_FIELD];
  if (result >= CELLC_DEVICE_ERROR) return error_words(result - CELLC_DEVICE_ERROR);
  if (result >= CELLC_FOREIGN_FIELD && result < CELLC_FOREIGN_FIELD + fields)
    return foreign[result - CELLC_FOREIGN_FIELD];
  if (result >= CELLC_MISSING_FIELD && result < CELLC_MISSING_FIELD + fields)
    return missing[result - CELLC_MISSING_FIELD];
  return cellc_message(result);
}

const char* cellc_cell_message(int result) {
  return words_of(result, cellc_the_cell.outline.field_count, cellc_missing, cellc_foreign, cellc_unaligned);
}
const char* cellc_cell_backward_message(int result) {
  return words_of(result, cellc_the_backward.field_count, cellc_backward_missing, cellc_backward_foreign,
                  cellc_backward_unaligned);
}

const char* cellc_cell_backward_about(void) { return cellc_about; }
const char* cellc_cell_about(void) { return cellc_about; }

/* The types of tables, for who fills them: build_library.cc finds them by these names. */
#define CELLC_TYPE(type) const type type_##type
CELLC_TYPE(cellc_symbol) = {0};
CELLC_TYPE(cellc_source) = {0};
CELLC_TYPE(cellc_dims) = {0};
CELLC_TYPE(cellc_field) = {0};
CELLC_TYPE(cellc_slot) = {0};
CELLC_TYPE(cellc_nest) = {0};
CELLC_TYPE(cellc_nest_kernel) = {0};
CELLC_TYPE(cellc_product) = {0};
CELLC_TYPE(cellc_phase) = {0};
CELLC_TYPE(cellc_nests) = {0};
CELLC_TYPE(cellc_stage) = {0};
CELLC_TYPE(cellc_entry) = {0};
CELLC_TYPE(cellc_variant) = {0};
CELLC_TYPE(cellc_remade) = {0};
CELLC_TYPE(cellc_stage_part) = {0};
CELLC_TYPE(cellc_reduced) = {0};
CELLC_TYPE(cellc_cell) = {0};
CELLC_TYPE(cellc_adjoint_input) = {0};
CELLC_TYPE(cellc_adjoint_out) = {0};
CELLC_TYPE(cellc_later_rows) = {0};
CELLC_TYPE(cellc_past_state) = {0};
CELLC_TYPE(cellc_adjoint_array) = {0};
CELLC_TYPE(cellc_zero_gradient) = {0};
CELLC_TYPE(cellc_step_sum) = {0};
CELLC_TYPE(cellc_backward) = {0};
#undef CELLC_TYPE
