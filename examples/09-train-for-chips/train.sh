# The digit classifier trained for three chips. The float model is the teacher, and the nearness to it is measured.
set -e
teacher="--distill 1 --distill-loss mse --metric sqnr_db"
data="--train train.npz --eval test.npz"

# Vitis: every scale is a power of two. TQT learns the threshold, and with it which power.
onnxq qat digits.onnx -b vitis --fake-quantizer tqt --weight-fake-quantizer tqt \
    $data $teacher --epochs 2 --lr 2e-4 -o out/vitis

# NNIE: the logarithmic grid belongs to the chip; weights learn to live on it.
onnxq qat digits.onnx -b nnie $data $teacher --epochs 2 --lr 2e-4 -o out/nnie

# Sophgo, layers of 4 bits: LSQ learns the scales.
onnxq qat digits.onnx -b sophgo_bm1688:precision=INT4 --fake-quantizer lsq --weight-fake-quantizer lsq \
    $data $teacher --epochs 2 --lr 1e-3 -o out/sophgo
