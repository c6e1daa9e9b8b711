#include "runtime/cuda/call/absent_arrays.h"

#include <algorithm>
#include <set>

#include "compiler/derive/pipeline.h"
#include "compiler/graph/graph_walk.h"
#include "runtime/data/bind.h"
#include "runtime/data/declared_value.h"

namespace cellc {

AbsentArrays::AbsentArrays(CallGpu& gpu, const CellGraph& cell, const CallLayout& layout, const CallShape& shape,
                           const std::map<AxisId, std::int64_t>& sizes, Dtype dtype, Dtype kept)
    : gpu_(gpu), cell_(cell), shape_(shape), sizes_(sizes), dtype_(dtype), arithmetic_(arithmetic_of(dtype)) {
  fields_.resize(layout.fields.size());
  for (std::size_t i = 0; i < fields_.size(); ++i) stand(fields_[i], layout.fields[i], kept);
  computing_ = defaults_of(cell, symbols_, Role::Defaults);
  made_.resize(symbols_.size());
}

void AbsentArrays::stand(Field& field, const CallField& of, Dtype kept) {
  field.part = part_entries(of, shape_);
  if (of.absent != FieldAbsent::Zeros && of.absent != FieldAbsent::Declared) return;
  const std::size_t bytes = static_cast<std::size_t>(all_entries(of, shape_)) * size_of(dtype_of(of.kind, kept));
  field.standing = GpuBuffer(gpu_, std::max<std::size_t>(1, bytes));
  if (of.absent == FieldAbsent::Zeros)
    gpu_.zero(field.standing.address(), field.standing.bytes(), 0);
  else
    declare(field, of);
}

/// A default that is a constant is there once and for all; one that follows from params is computed in each
/// run that needs it.
void AbsentArrays::declare(Field& field, const CallField& of) {
  std::set<int> all;
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s) all.insert(static_cast<int>(s));
  const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(of.id)];
  if (depends_on(cell_.graph, symbol.initial, all)) {
    field.computed = static_cast<int>(symbols_.size());
    symbols_.push_back(of.id);
    return;
  }
  // A param's default is rounded as a param of an input file would be.
  const Dtype rounded = of.kind == FieldKind::Param ? dtype_ : arithmetic_;
  const Array array =
      convert(declared_value(cell_, of.id, sizes_, {}, rounded, {all_entries(of, shape_)}), arithmetic_);
  gpu_.copy_in(field.standing.address(), array.data(), static_cast<std::size_t>(array.count()) * size_of(arithmetic_),
               0);
}

void AbsentArrays::compute(std::span<const CallArray> arrays, const std::vector<GpuAddress>& values,
                           StridedCopies& moves, GpuStream stream) {
  bool wanted = false;
  for (std::size_t i = 0; i < fields_.size(); ++i) wanted = wanted || (fields_[i].computed >= 0 && !arrays[i].data);
  if (!wanted) return;
  if (!program_) {
    program_.emplace(NestProgram::compile(gpu_, computing_.cell, Structure{}, arithmetic_, {}));
    one_row_ = GpuBuffer(gpu_, 16);
    const std::int64_t offsets[] = {0, 1};
    gpu_.copy_in(one_row_.address(), offsets, sizeof offsets, 0);
  }
  NestRun run;
  run.sizes = sizes_;
  run.offsets = {0, 1};
  run.device_offsets = one_row_.address();
  for (const ArraySource& source : computing_.sources) {
    NestArray array;
    array.data = values[static_cast<std::size_t>(source.id)];
    array.history = one_row_.address();
    run.symbols.push_back(array);
  }
  for (const Field& f : fields_) {
    if (f.computed < 0) continue;
    GpuBuffer& made = made_[static_cast<std::size_t>(f.computed)];
    gpu_.reserve(made, static_cast<std::size_t>(f.part) * size_of(arithmetic_));
    run.outs.push_back(made.address());
  }
  program_->run(run, stream);
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const Field& f = fields_[i];
    if (f.computed < 0 || arrays[i].data) continue;
    moves.move({f.standing.address(), f.part, f.part}, arithmetic_,
               {run.outs[static_cast<std::size_t>(f.computed)], 0, f.part}, arithmetic_, shape_.sequences, 1, f.part,
               stream);
  }
}

}  // namespace cellc
